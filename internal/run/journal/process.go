package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// Holder is who runs this process, as user@host/pid: for the lock, and for people.
func Holder() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s@%s/%d", name, host, os.Getpid())
}

// looks, marks and benches end the name of a holder of the lock that runs no migration: one inspects nodes, one looks
// at a guard, or marks it, and one puts load on the network for a benchmark.
const (
	looks   = " (looks at nodes)"
	marks   = " (looks at a guard)"
	benches = " (benchmarks the network)"
)

// Looker is Holder for a process that only inspects nodes.
func Looker() string { return Holder() + looks }

// Bencher is Holder for a process that benchmarks the network.
func Bencher() string { return Holder() + benches }

// Onlooker is the name for the lock of a holder who looks at a guard, or marks it.
func Onlooker(holder string) string { return holder + marks }

// process identifies a process: boot, pid namespace, pid and start time. With it, a process on the same machine can be
// known to have ended. It is "" if /proc cannot be read.
func process(pid int) string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	started, _ := startOf(pid)
	if started == "" {
		return ""
	}
	return fmt.Sprintf("%s %s %d %s", strings.TrimSpace(string(boot)), namespace, pid, started)
}

// gone is true if a process named by process certainly does not run any more: it was one of this boot and
// this pid namespace, and does not exist, or is a zombie.
func gone(name string) bool {
	fields := strings.Fields(name)
	if len(fields) != 4 {
		return false
	}
	own := strings.Fields(process(os.Getpid()))
	pid, err := strconv.Atoi(fields[2])
	if err != nil || len(own) != 4 || own[0] != fields[0] || own[1] != fields[1] {
		return false
	}
	// If /proc hides other users' processes, the signal still shows whether the process exists.
	if p, err := os.FindProcess(pid); err == nil && errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone) {
		return true
	}
	started, dead := startOf(pid)
	return started != "" && (dead || started != fields[3])
}

// startOf is the start time of a process in clock ticks since boot, and whether it is a zombie. The time is "" if it
// cannot be read.
func startOf(pid int) (string, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false
	}
	// The second field is a name in parentheses, which may hold spaces and parentheses.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return "", false
	}
	return fields[19], fields[0] == "Z" || fields[0] == "X"
}
