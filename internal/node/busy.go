package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of /proc/stat, USER_HZ. Source: Linux, include/asm-generic/param.h, and proc_stat(5).
const tick = 10 * time.Millisecond

// Busy is how long all processors of the machine together have worked since it started: everything but idle, iowait and
// the time of guests, which is part of user.
func (n *Node) Busy() (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(n.Sys), "stat"))
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	if len(fields) < 8 || fields[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	var busy time.Duration
	for _, i := range []int{1, 2, 3, 6, 7} { // user, nice, system, irq, softirq
		ticks, err := strconv.ParseUint(fields[i], 10, 48)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		busy += time.Duration(ticks) * tick
	}
	return busy, nil
}

// Processors is how many the machine has that are online; 0 if that is not known.
func (n *Node) Processors() (count int) {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(n.Sys), "stat"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) { // cpu0, cpu1, ...; "cpu" alone is their sum
		if len(line) > 3 && strings.HasPrefix(line, "cpu") && line[3] >= '0' && line[3] <= '9' {
			count++
		}
	}
	return count
}

// Boot identifies the boot of the kernel: nodes with the same one share a machine.
func (n *Node) Boot() string {
	text, err := os.ReadFile(filepath.Join(n.Sys, "kernel/random/boot_id"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
