package flannel_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/flannel"
)

// flannelIn is a cluster with flannel and one node.
func flannelIn(t *testing.T, conf, ranges string) *cluster.Snapshot {
	t.Helper()
	return cnitest.Snapshot(t, cnitest.Documents(t, []byte("apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: "+
		"kube-flannel-ds, namespace: kube-flannel}\nspec: {template: {spec: {containers: [{name: kube-flannel, image: "+
		"'ghcr.io/flannel-io/flannel:v0.27.4'}]}}}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+
		"kube-flannel-cfg, namespace: kube-flannel}\ndata:\n  cni-conf.json: '{}'\n  net-conf.json: '"+conf+"'\n"+
		"---\napiVersion: v1\nkind: Node\nmetadata: {name: s-1}\nspec: {podCIDR: "+ranges+"}\nstatus: {addresses: "+
		"[{type: InternalIP, address: 192.0.2.10}]}\n")))
}

// TestCopy: flannel gets the original's settings, and its range if that holds the ranges of the nodes.
func TestCopy(t *testing.T) {
	const port = `{"Network":"10.1.0.0/16","Backend":{"Type":"vxlan","Port":8999,"MTU":1400}}`
	for name, c := range map[string]struct {
		ours, theirs, nodes string
		link                int
		want, says          string
		restarts            int
	}{
		"the same": {port, port, "10.1.3.0/24", 0, "", "", 0},
		"its own range": {port, `{"Network":"10.1.0.0/20","Backend":{"Type":"vxlan"}}`, "10.1.3.0/24", 0,
			`{"Backend":{"MTU":1400,"Port":8999,"Type":"vxlan"},"Network":"10.1.0.0/16"}`, "its own range", 1},
		"the scratch cluster's": {port, `{"Network":"10.9.0.0/16","Backend":{"Type":"host-gw"}}`, "10.9.3.0/24", 1500,
			`{"Backend":{"MTU":1400,"Port":8999,"Type":"vxlan"},"Network":"10.9.0.0/16"}`,
			"the scratch cluster's range 10.9.0.0/16 instead of 10.1.0.0/16", 1},
		"too big": {port, `{"Network":"10.1.0.0/16","Backend":{"Type":"vxlan"}}`, "10.1.3.0/24", 1300,
			`{"Backend":{"Port":8999,"Type":"vxlan"},"Network":"10.1.0.0/16"}`, "flannel's MTU 1400", 1},
		"unread": {`{`, port, "10.1.3.0/24", 0, "", "it cannot be read in one of the two clusters", 0},
		"IPv6": {`{"Network":"10.1.0.0/16","EnableIPv6":true,"IPv6Network":"fd00::/56"}`,
			`{"Network":"10.1.0.0/16"}`, "10.1.3.0/24", 0, "", "the copy has IPv4 only", 0},
	} {
		original, scratch := flannelIn(t, c.ours, "10.1.0.0/24"), flannelIn(t, c.theirs, c.nodes)
		if c.link > 0 {
			scratch.Facts = []cluster.NodeFacts{{Node: "s-1", Links: []cluster.Link{{Name: "eth0", MTU: c.link,
				Addresses: []string{"192.0.2.10/24"}}}}}
		}
		driver := flannel.Driver{}
		got, err := driver.Copy(&cni.Copying{Original: original, Scratch: scratch, Ours: driver.Detect(original),
			Theirs: driver.Detect(scratch)})
		if err != nil {
			t.Fatal(err)
		}
		var conf string
		for _, o := range got.Objects {
			data := o.Object["data"].(map[string]any)
			conf = strings.Join(strings.Fields(data["net-conf.json"].(string)), "")
			if data["cni-conf.json"] != "{}" {
				t.Errorf("%s: %v", name, data)
			}
		}
		if conf != c.want || !strings.Contains(fmt.Sprint(got.Said, got.Lacks), c.says) ||
			len(got.Restart) != c.restarts {
			t.Errorf("%s: %s, %+v", name, conf, got)
		}
	}
	all := flannel.Driver{}.Settings(flannelIn(t, port, "10.1.0.0/24"),
		flannelIn(t, `{"Network":"10.9.0.0/16","Backend":{"Type":"vxlan"}}`, "10.9.0.0/24"), nil)
	var unlike []string
	for _, s := range all {
		if s.Original != s.Copy {
			unlike = append(unlike, s.Area+" "+s.Name)
		}
	}
	if want := []string{"ranges of pods Network", "net-conf.json Backend.Port", "MTU Backend.MTU"}; !slices.Equal(
		unlike, want) {
		t.Errorf("not alike: %q", unlike)
	}
}
