package socket

import "time"

// LongAgo is a deadline that has passed, whatever the clock says.
var LongAgo = time.Unix(1, 0)
