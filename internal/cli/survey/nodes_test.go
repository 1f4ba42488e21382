package survey

import (
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/network/cnitest"
)

// TestSights: every node's agent reads what the network's own programs serve at the node itself, and nothing elsewhere.
func TestSights(t *testing.T) {
	for name, c := range map[string]struct{ file, from, to, want string }{
		"no program": {"flannel.yaml", "", "", ""},
		"Felix":      {"calico.yaml", "", "", "http://127.0.0.1:9091/metrics"},
		"a router": {"weave.yaml", "env:", "env:\n            - {name: WEAVE_NO_FASTDP, value: '1'}",
			"http://127.0.0.1:6784/report"},
		"a router, elsewhere": {"weave.yaml", "env:", "env:\n            - {name: WEAVE_NO_FASTDP, value: '1'}\n" +
			"            - {name: WEAVE_HTTP_ADDR, value: '192.0.2.9:80'}", ""},
	} {
		text := strings.Replace(string(cnitest.Text(t, c.file)), c.from, c.to, 1)
		all := sights(cnitest.Snapshot(t, cnitest.Documents(t, []byte(text))))
		if len(all) == 0 {
			t.Errorf("%s: no nodes", name)
		}
		for _, sight := range all {
			got := ""
			for _, reading := range sight.Readings {
				got += reading.URL
			}
			if got != c.want {
				t.Errorf("%s, node %s: %q, want %q", name, sight.Node, got, c.want)
			}
		}
	}
}
