package test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// traces is everything of the world that a lab could leave something in: a line for each thing.
type traces map[string]bool

// lookAround collects the traces.
func lookAround(t *testing.T) traces {
	t.Helper()
	out := traces{}
	processes(out)
	mounts(t, out)
	links(t, out)
	cgroups(out)
	sysctls(out)
	return out
}

func processes(out traces) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		// This test's own helpers, such as the go command, have ended before it looks around.
		raw, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue
		}
		out["process "+string(raw[:strings.LastIndexByte(string(raw), ')')+1])] = true
		spaces, _ := filepath.Glob(dir + "/ns/*")
		for _, ns := range spaces {
			if target, err := os.Readlink(ns); err == nil {
				out["namespace "+target] = true
			}
		}
	}
}

func mounts(t *testing.T, out traces) {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		out["mount "+strings.TrimSpace(line)] = true
	}
}

func links(t *testing.T, out traces) {
	t.Helper()
	list, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range list {
		out[fmt.Sprintf("link %s %s", l.Attrs().Name, l.Type())] = true
	}
}

// cgroups are the machine's, not the world's: only those of the tests' labs count.
func cgroups(out traces) {
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && testLabs.MatchString(path) {
			out["cgroup "+path] = true
		}
		return nil
	})
}

var testLabs = regexp.MustCompile(`theseus-lab-t\d`)

// volatile are files of /proc/sys that are no settings: counters, and what differs at each reading.
var volatile = regexp.MustCompile(`^/proc/sys/(fs/(dentry-state|inode-nr|inode-state|file-nr|aio-nr|quota/.*)|` +
	`kernel/(random/.*|ns_last_pid|pty/nr|perf_event_max_sample_rate|hung_task_(detect_count|warnings))|net/netfilter/nf_conntrack_count|net/ipv4/tcp_fastopen_key|.*/stable_secret)$`)

func sysctls(out traces) {
	_ = filepath.WalkDir("/proc/sys", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || volatile.MatchString(path) {
			return nil
		}
		if raw, err := os.ReadFile(path); err == nil {
			out["sysctl "+path+" = "+strings.TrimSpace(string(raw))] = true
		}
		return nil
	})
}

// compare fails the test with every line that came or went.
func compare(t *testing.T, before, after traces) {
	t.Helper()
	var diff []string
	for line := range after {
		if !before[line] {
			diff = append(diff, "+ "+line)
		}
	}
	for line := range before {
		if !after[line] {
			diff = append(diff, "- "+line)
		}
	}
	slices.Sort(diff)
	if len(diff) > 0 {
		t.Errorf("the lab left traces:\n%s", strings.Join(diff, "\n"))
	}
}

// count is how many traces of the kind there are that were not there before.
func (after traces) count(before traces, kind string) int {
	n := 0
	for line := range after {
		if strings.HasPrefix(line, kind+" ") && !before[line] {
			n++
		}
	}
	return n
}
