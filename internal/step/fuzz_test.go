package step

import (
	"encoding/json"
	"net"
	"path"
	"slices"
	"strings"
	"testing"
)

// FuzzAllowed: whatever a task says, a residue that is allowed names paths that are clean, and links that are not the
// host's.
func FuzzAllowed(f *testing.F) {
	for _, args := range []string{`{"paths":["/run/flannel"],"links":["cali*"]}`,
		`{"paths":["/run/flannel/../../etc"]}`, `{"links":["lo"]}`,
		`{"paths":["/var/lib/cni/networks/*"],"chains":["KUBE-*"]}`,
		`{"Paths":["/etc"]}`, `{"within":["10.0.0.0/8"]}`, `[]`, `{"old":["x"]}`,
		`{"pairs":[{"from":{"namespace":"a","name":"b","uid":"c","address":"10.0.0.1"},"to":{"namespace":"a","name":"d",
			"uid":"e","address":"127.0.0.1"},"port":80}]}`} {
		f.Add(uint8(0), []byte(args))
		f.Add(uint8(7), []byte(args))
		f.Add(uint8(12), []byte(args))
	}
	verbs := []string{VerbClean, VerbInventory, VerbGuard, VerbRelease, VerbDataplane, VerbJoin, VerbPart, VerbHold,
		VerbPin, VerbRetain, VerbAdopt, VerbSettle, VerbConnect}
	f.Fuzz(func(t *testing.T, which uint8, args []byte) {
		verb := verbs[int(which)%len(verbs)]
		var c ConnectArgs
		if verb == VerbConnect && Allowed(verb, args) == nil && json.Unmarshal(args, &c) == nil {
			for _, pair := range c.Pairs {
				if to := net.ParseIP(pair.To.Address); to == nil || to.IsLoopback() || to.IsLinkLocalUnicast() {
					t.Errorf("%s may be connected to", pair.To.Address)
				}
			}
		}
		var r Residue
		if Allowed(verb, args) != nil || verb != VerbClean || json.Unmarshal(args, &r) != nil {
			return
		}
		for _, name := range r.Paths {
			up := slices.Contains(strings.Split(name, "/"), "..") // "a.." is a name like any other
			if path.Clean(name) != name || up || strings.Count(name, "/") < 2 {
				t.Errorf("%s may remove %q", args, name)
			}
		}
		if slices.Contains(r.Links, "lo") || slices.Contains(r.Links, "*") || slices.Contains(r.Chains, "KUBE-*") ||
			slices.Contains(r.Chains, "*") {
			t.Errorf("%s may be removed", args)
		}
	})
}
