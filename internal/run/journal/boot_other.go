//go:build !linux

package journal

import "time"

// sinceBoot is the time of day here: it counts the time in suspend, though also when somebody sets the clock.
func sinceBoot() time.Duration { return time.Duration(time.Now().UnixNano()) }
