package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/step"
)

// parkMark marks a process whose nodes park pods.
const parkMark = "THESEUS_TEST_PARK"

// bothWays runs a test of moves on a kernel that renames an interface in use, and as on one that does not. The latter
// is off in the product, so most tests have it with THESEUS_FULL=1 alone.
func bothWays(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	for _, way := range [][2]string{{"renamed", ""}, {"parked", "1"}} {
		t.Run(way[0], func(t *testing.T) {
			if way[1] != "" && !strings.HasPrefix(t.Name(), "TestPark") &&
				!strings.HasPrefix(t.Name(), "TestAdoptThereAndBack/") {
				full(t)
			}
			t.Setenv(parkMark, way[1])
			test(t)
		})
	}
}

// full skips a test of parked pods unless THESEUS_FULL=1 is set. make says so.
func full(t *testing.T) {
	t.Helper()
	if os.Getenv("THESEUS_FULL") != "1" {
		t.Skip("NOT TESTED: the same with parked pods; THESEUS_FULL=1 tests it")
	}
}

// TestParkable: this kernel has no bridges that separate VLANs.
func TestParkable(t *testing.T) {
	yes := true
	bridge := &netlink.Bridge{LinkAttrs: linkAttrs("cni0")}
	if err := parkable(bridge); err != nil {
		t.Error(err)
	}
	bridge.VlanFiltering = &yes
	if err := parkable(bridge); err == nil || !strings.Contains(err.Error(), "cni0 separates VLANs") {
		t.Errorf("with VLANs: %v", err)
	}
}

// event is a change of an interface as the kernel tells it, whoever asked for it: the agent or a plugin.
type event struct {
	index int
	name  string
	up    bool
}

// watch collects what becomes of the interfaces that are in a pod at the beginning or come to it. The returned function
// ends it.
func (p *testPod) watch() (ended func() []event) {
	p.t.Helper()
	in, err := p.w.enter(p.path)
	must(p.t, err)
	defer in.close()
	var all []event
	present, err := in.LinkList()
	must(p.t, err)
	for _, link := range present {
		all = append(all, event{link.Attrs().Index, link.Attrs().Name, link.Attrs().Flags&net.FlagUp != 0})
	}
	updates, done := make(chan netlink.LinkUpdate), make(chan struct{})
	must(p.t, netlink.LinkSubscribeWithOptions(updates, done, netlink.LinkSubscribeOptions{
		Namespace: &in.ns, ErrorCallback: func(err error) {
			if errors.Is(err, unix.ENOBUFS) {
				p.t.Errorf("events are missing: %v", err)
			}
		},
	}))
	var collects sync.WaitGroup
	collects.Go(func() {
		for update := range updates {
			if update.Header.Type == unix.RTM_NEWLINK {
				all = append(all,
					event{int(update.Index), update.Attrs().Name, update.IfInfomsg.Flags&unix.IFF_UP != 0})
			}
		}
	})
	return func() []event {
		time.Sleep(100 * time.Millisecond)
		close(done)
		collects.Wait()
		return all
	}
}

// inUse lists the interfaces that were renamed while they were up.
func inUse(all []event) (names []string) {
	before := map[int]event{}
	for _, e := range all {
		if was, known := before[e.index]; known && was.name != e.name && (was.up || e.up) {
			names = append(names, was.name+" to "+e.name)
		}
		before[e.index] = e
	}
	return names
}

// received counts the packets that came by an interface of the pod.
func (p *testPod) received(name string) uint64 {
	p.t.Helper()
	in, err := p.w.enter(p.path)
	must(p.t, err)
	defer in.close()
	link, err := in.LinkByName(name)
	must(p.t, err)
	return link.Attrs().Statistics.RxPackets + link.Attrs().Statistics.TxPackets
}

// TestParkRenamesNothingInUse: of a parked pod no process renames an interface while it is up; and the one that is set
// down has no packets any more, of which the pod has thousands a second. A pod that is not parked is the control.
func TestParkRenamesNothingInUse(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		if !alone(t) {
			return
		}
		w := newSite(t)
		a, b := w.pod("a", bridgeList, nil), w.pod("b", bridgeList, nil)
		end := flows(t, w, a, b)
		argument := forth
		argument.Pods = []string{"test/a"}
		for _, way := range []step.AdoptArgs{argument, back} {
			ended := a.watch()
			still := -1
			w.hook = func(at string) {
				if at != "set the old interface down" && at != "rename to "+oldName || still >= 0 {
					return
				}
				before := a.received("eth0")
				time.Sleep(50 * time.Millisecond)
				still = int(a.received("eth0") - before)
			}
			do(t, w.Node, step.VerbAdopt, way)
			w.hook = nil
			all := ended()
			t.Logf("%d events of a's interfaces, %d packets in the 50 ms before eth0 is touched, renamed in use: %v",
				len(all), still, inUse(all))
			switch {
			case !slices.ContainsFunc(all, func(e event) bool { return e.name == oldName }):
				t.Error("nothing was renamed: it shows nothing")
			case w.Park && (len(inUse(all)) > 0 || still > 3): // a neighbour may ask for its address
				t.Errorf("renamed in use: %v; it had %d packets in 50 ms", inUse(all), still)
			case !w.Park && (len(inUse(all)) == 0 || still < 20):
				t.Errorf("the control: renamed in use: %v; it had %d packets in 50 ms", inUse(all), still)
			}
		}
		end()
	})
}

// TestAdoptGaps measures the gaps of moves as their agent does, and prints them: THESEUS_GAPS is how many moves there
// and back.
func TestAdoptGaps(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("THESEUS_GAPS"))
	if err != nil {
		t.Skip("NOT MEASURED: gaps; THESEUS_GAPS=20 does so for 20 moves there and back, parked and not")
	}
	bothWays(t, func(t *testing.T) {
		if !alone(t) {
			return
		}
		w := newSite(t)
		w.pod("a", bridgeList, nil)
		var longest, atFlip, control []time.Duration
		sent, lost := 0, 0
		for range rounds {
			for _, way := range []step.AdoptArgs{forth, back} {
				gap := outcomes(t, do(t, w.Node, step.VerbAdopt, way))["a"].Gap
				if gap == nil {
					t.Fatal("nothing was measured")
				}
				sent, lost = sent+gap.Sent, lost+gap.Lost
				longest, atFlip, control = append(longest, time.Duration(gap.Longest)),
					append(atFlip, time.Duration(gap.AtFlip)), append(control, time.Duration(gap.Control))
			}
		}
		t.Logf("%d moves, %d of %d datagrams lost; median, p99 and longest gap of the move %s, "+
			"at the flip %s, before it %s",
			2*rounds, lost, sent, spread(longest), spread(atFlip), spread(control))
		if lost > 0 {
			t.Error("datagrams are lost")
		}
	})
}

// spread is the median, the 99th percentile and the maximum.
func spread(all []time.Duration) string {
	slices.Sort(all)
	at := func(percent int) time.Duration { return all[(len(all)-1)*percent/100].Round(10 * time.Microsecond) }
	return fmt.Sprintf("%s/%s/%s", at(50), at(99), at(100))
}

// TestParkAgentsDie kills the agent when the target's plugin has answered, and the next one before every single change
// that it makes to take the move back, by way of a pair again. The third leaves the pod as it was.
func TestParkAgentsDie(t *testing.T) {
	if isVictim(t) {
		return
	}
	full(t)
	t.Setenv(parkMark, "1")
	if !alone(t) {
		return
	}
	w := newSite(t)
	a, b := w.pod("a", bridgeList, nil), w.pod("b", bridgeList, nil)
	before := a.state()
	end := flows(t, w, a, b)
	kills := 0
	for change := 1; ; change++ {
		if killed, _ := (victim{Root: w.Root, Args: forth, Point: "added"}).move(t, a); !killed {
			t.Fatal("the plugin was not asked")
		}
		_, point := moveUntil(t, w, a, forth, change)
		if point == "save pinning" { // all is taken back, and it begins again
			break
		}
		kills++
		if _, err := resumed(t, w); err != nil {
			t.Fatalf("after %q: %v", point, err)
		}
		if on, after := a.whole(), a.state(); on != "bridged" || after != before || t.Failed() {
			t.Fatalf("killed before %q: it is %s and was\n%s\nand is\n%s", point, on, before, after)
		}
	}
	_, err := resumed(t, w)
	must(t, err)
	end()
	if t.Logf("killed before each of %d changes", kills); kills < 30 {
		t.Error("it was not parked")
	}
}

// resumed is what the next agent does when it starts.
func resumed(t *testing.T, w *site) ([]step.AdoptOutcome, error) {
	t.Helper()
	next := nodeAt(w.Root)
	next.hasty = true
	return next.Resume(t.Context())
}
