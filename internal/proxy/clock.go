package proxy

import "time"

// begun is when the process began; it has a reading of the monotonic clock.
var begun = time.Now()

// instant is a time as a number above zero, for atomics. Unlike Unix times it does not jump when somebody sets the system's clock.
func instant(t time.Time) int64 { return instantBegun + int64(t.Sub(begun)) }

// instantBegun leaves room for the clocks of tests, which begin long before.
const instantBegun = 1 << 61

// since is how long ago an instant was.
func since(i int64) time.Duration { return time.Duration(instant(time.Now()) - i) }
