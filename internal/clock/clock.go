// Package clock has times as numbers, for atomics. They come from the monotonic clock, so that intervals between them do not jump when somebody sets
// the system's clock. The data plane uses it; it keeps nothing and ticks nowhere.
package clock

import "time"

// begun is when the process began; it has a reading of the monotonic clock.
var begun = time.Now()

// instantBegun leaves room for the clocks of tests, which begin long before.
const instantBegun = 1 << 61

// Instant is t as a number above zero, in nanoseconds. It means something only beside others of the same process.
func Instant(t time.Time) int64 { return instantBegun + int64(t.Sub(begun)) }

// Since is how long ago an instant was.
func Since(i int64) time.Duration { return time.Duration(Instant(time.Now()) - i) }
