package preflight

import (
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/calico"
	drivers "github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/flannel"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/preflight/check/checktest"
	"github.com/theseus-cni/theseus/internal/preflight/check/cni"
)

// TestHalfWay: what is said of a real cluster that somebody's Calico left half-way, as TestBadInput in the lab makes
// it, and of the same with each network on one node alone, as where a node comes that still has flannel's file.
func TestHalfWay(t *testing.T) {
	const flannelsFile, calicosFile = "10-flannel.conflist", "10-calico.conflist"
	pods := "warn Network/flannel: pods are on more than one network: calico has 2 pods on 2 nodes " +
		"(default/db-d8c775855-l2srd, default/db-d8c775855-rpw54), flannel has "
	both := func(nodes string) string {
		return "warn Node/node-1: on " + nodes + " there is more than one CNI configuration: " + calicosFile +
			" serves because it sorts first, and " + flannelsFile + " would serve without it"
	}
	apart := "warn Network/flannel: which network new pods are on depends on their node: " + calicosFile +
		" on 1 node (node-1), " + flannelsFile + " on 1 node (node-2)"
	for _, test := range []struct {
		name string
		gone map[string]string // the file that a node has not
		want []string
	}{
		{"as it was", nil, []string{pods, both("2 nodes (node-1, node-2)")}},
		{"Calico's file moved away on one node", map[string]string{"node-2": calicosFile},
			[]string{pods, apart, both("1 node (node-1)")}},
		{"each on one node", map[string]string{"node-1": flannelsFile, "node-2": calicosFile}, []string{pods, apart}},
	} {
		t.Run(test.name, func(t *testing.T) {
			snapshot := cnitest.Golden(t, "mixed")
			for i := range snapshot.Facts {
				f := &snapshot.Facts[i]
				f.Confs = slices.DeleteFunc(f.Confs, func(c cluster.Conf) bool { return c.File == test.gone[f.Node] })
			}
			found := drivers.Registry{flannel.Driver{}, calico.Driver{}}.Detect(snapshot)
			pass := &check.Pass{Snapshot: snapshot, Found: found, Source: found[0]}
			var got []string
			for _, f := range cni.HalfWay().Run(pass) {
				got = append(got, checktest.Line(f))
			}
			if !slices.EqualFunc(got, test.want, strings.HasPrefix) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}
