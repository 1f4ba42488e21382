package cni

import (
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

// TestFoldersFix: the fix is a command that rewrites the manifest, unless a node tells a folder that sed would take for
// more than a path.
func TestFoldersFix(t *testing.T) {
	for told, want := range map[string]string{
		"/var/lib/rancher/k3s/agent/etc/cni/net.d": `sed -i 's|path: */etc/cni/net.d/*$|path: ` +
			`/var/lib/rancher/k3s/agent/etc/cni/net.d|' MANIFEST`,
		"/srv/x|e": "hostPath '/srv/x|e'",
	} {
		pass := &check.Pass{Source: &cni.Installation{}, Target: &cni.Installation{ConfFolder: "/etc/cni/net.d"},
			Snapshot: &cluster.Snapshot{Facts: []cluster.NodeFacts{{Node: "a", Folders: &cluster.Folders{Conf: told}}}}}
		found := Folders().Run(pass)
		if len(found) != 1 || !strings.HasSuffix(found[0].Fix, want) {
			t.Errorf("%s: the findings are %+v, want the fix %s", told, found, want)
		}
	}
}
