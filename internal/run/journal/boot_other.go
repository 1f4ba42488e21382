//go:build !linux

package journal

import "time"

// sinceBoot is the time of day here. It includes time in suspend, but also jumps when the clock is set.
func sinceBoot() time.Duration { return time.Duration(time.Now().UnixNano()) }
