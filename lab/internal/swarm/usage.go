package swarm

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Usage is what a program of the cluster took since it began.
type Usage struct {
	CPU  time.Duration
	Peak int64 // memory, in bytes
}

// jiffy is the unit of processor times in /proc: the kernel has a fixed one for programs.
const jiffy = 10 * time.Millisecond

// Usage is that of each program that runs, by its name. A program that was started again has begun again.
func (c *Cluster) Usage() map[string]Usage {
	all := map[string]Usage{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // fails with a bad pattern only
	for _, file := range stats {
		stat, err := os.ReadFile(file)
		if err != nil { // it has ended
			continue
		}
		parent, cpu, ok := times(string(stat))
		if !ok || parent != os.Getpid() {
			continue
		}
		argv, err := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		status, err2 := os.ReadFile(filepath.Join(filepath.Dir(file), "status"))
		if err != nil || err2 != nil {
			continue
		}
		if name := c.named(bytes.Split(argv, []byte{0})); name != "" {
			all[name] = Usage{CPU: cpu, Peak: peak(string(status))}
		}
	}
	return all
}

// named is the name of the program with a command line; "" if it is none of the cluster.
func (c *Cluster) named(argv [][]byte) string {
	switch {
	case string(argv[0]) == c.Nodal:
		return "nodes"
	case string(argv[0]) == c.Kube && len(argv) > 1:
		return string(argv[1])
	}
	return ""
}

// times reads the parent and the processor time in the file stat of a process. Its second field is the name in
// parentheses, which may have any characters.
func times(stat string) (parent int, cpu time.Duration, ok bool) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	user, err2 := strconv.ParseInt(fields[11], 10, 64)
	system, err3 := strconv.ParseInt(fields[12], 10, 64)
	return parent, time.Duration(user+system) * jiffy, err == nil && err2 == nil && err3 == nil
}

// peak is the largest memory that a process had, by its file status.
func peak(status string) int64 {
	for line := range strings.Lines(status) {
		if rest, is := strings.CutPrefix(line, "VmHWM:"); is {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10
		}
	}
	return 0
}
