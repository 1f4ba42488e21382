package journal

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot is how long the machine has been up, including the time that it was suspended.
func sinceBoot() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0 // Linux has it since 2.6.39
	}
	return time.Duration(now.Nano())
}
