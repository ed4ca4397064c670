package socket

import "time"

// LongAgo is a deadline that has always passed.
var LongAgo = time.Unix(1, 0)
