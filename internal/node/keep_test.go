package node

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/step"
)

// TestJoinKeepsRoutes: the target's agent takes the route to the source's bridge, as Felix v3.31 does when its pool is
// encapsulated, and one to another node. The pods are reached again after one look, the moves of pods go on, and
// parting leaves what was there.
func TestJoinKeepsRoutes(t *testing.T) {
	if !alone(t) {
		return
	}
	w := newSite(t)
	w.hasty = true
	a, b := w.pod("a", bridgeList, nil), w.pod("b", bridgeList, nil)
	for _, args := range []string{"link add flannel.1 type bridge", "link add tunnel type bridge",
		"address add 198.19.5.0/32 dev flannel.1",
		"link set flannel.1 up", "link set tunnel up", "route add 198.19.6.0/24 via 198.19.6.0 dev flannel.1 onlink"} {
		sh(t, "", append([]string{"ip"}, strings.Fields(args)...)...)
	}
	before := sh(t, "", "ip", "-4", "route")
	reached := func(when string, p *testPod, want bool) {
		t.Helper()
		mustBeReached(t, when, p, want)
	}
	keep := func() string {
		t.Helper()
		mended, err := w.Keep(t.Context())
		must(t, err)
		return mended
	}
	do(t, w.Node, step.VerbJoin, step.JoinArgs{Old: []string{"198.19.0.0/16"}, New: []string{"198.19.0.0/16"},
		Keep: []string{"cni*", "flannel.1"}})
	if mended := keep(); mended != "" {
		t.Errorf("nothing was taken, and mended: %s", mended)
	}

	sh(t, "", "ip", "route", "replace", "blackhole", "198.19.5.0/24", "proto", "80")
	sh(t, "", "ip", "route", "replace", "198.19.6.0/24", "dev", "tunnel", "proto", "80")
	reached("with the blackhole", a, false)
	if mended := keep(); !strings.Contains(mended, "198.19.5.0/24 was taken from cni0") {
		t.Errorf("mended: %q", mended)
	}
	reached("mended", a, true)
	if mended := keep(); mended != "" {
		t.Errorf("mended again: %s", mended)
	}
	do(t, w.Node, step.VerbAdopt, forth)
	reached("moved", a, true)
	do(t, w.Node, step.VerbAdopt, back)
	reached("back", a, true)
	reached("back", b, true)

	sh(t, "", "ip", "link", "del", "tunnel")
	if mended := keep(); !strings.Contains(mended, "198.19.6.0/24 is back on flannel.1") {
		t.Errorf("when the tunnel went: %q", mended)
	}
	do(t, w.Node, step.VerbPart, step.JoinArgs{})
	if after := sh(t, "", "ip", "-4", "route"); after != before {
		t.Errorf("the routes were\n%sand are\n%s", before, after)
	}
	reached("parted", a, true)
}

func mustBeReached(t *testing.T, when string, p *testPod, want bool) {
	t.Helper()
	_, err := net.DialTimeout("tcp4", p.address+":9", 2*time.Second)
	if got := errors.Is(err, unix.ECONNREFUSED); got != want { // nobody listens there
		t.Errorf("%s: %s is reached: %t, want %t (%v)\n%s",
			when, p.name, got, want, err, sh(t, "", "ip", "-4", "route"))
	}
}

// TestAdoptKeepsRoutes: the route to the bridge is taken while a pod goes back there, which waits for that route. It is
// given another one meanwhile, as are the pods that never left.
func TestAdoptKeepsRoutes(t *testing.T) { bothWays(t, testAdoptKeepsRoutes) }

func testAdoptKeepsRoutes(t *testing.T) {
	if !alone(t) {
		return
	}
	w := newSite(t)
	w.hasty = true
	a, b := w.pod("a", bridgeList, nil), w.pod("b", bridgeList, nil)
	do(t, w.Node, step.VerbJoin,
		step.JoinArgs{Old: []string{"198.19.0.0/16"}, New: []string{"198.19.0.0/16"}, Keep: []string{"cni*"}})
	there := forth
	there.Pods = []string{"test/a"}
	do(t, w.Node, step.VerbAdopt, there)
	w.hook = func(at string) {
		if at == "flipped" {
			sh(t, "", "ip", "route", "replace", "blackhole", "198.19.5.0/24", "proto", "80")
			mustBeReached(t, "with the blackhole", b, false)
		}
	}
	do(t, w.Node, step.VerbAdopt, back)
	if a.whole() != "bridged" {
		t.Error("it is not back")
	}
	mustBeReached(t, "back", a, true)
	mustBeReached(t, "back", b, true)
}
