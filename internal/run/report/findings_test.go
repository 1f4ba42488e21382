package report

import (
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/network/bgp/draw"
)

func TestFindings(t *testing.T) {
	s := clustertest.Reflectors(5)
	graph := bgp.Build(bgp.FromSnapshot(s), false)
	result := finding.NewResult([]finding.Finding{{ID: "bgp/partition", Severity: finding.Block,
		Subject: finding.Subject{Kind: "Network", Name: "calico"}, Message: "a <b> c",
		Fix: "kubectl label node a b=c"}},
		[]finding.NotChecked{{ID: "node/kernel", Why: "nobody looked"}})
	page, err := Findings(result,
		[]draw.Row{{Family: "IPv4", Before: graph, After: graph, BeforeTitle: "today", AfterTitle: "after the change"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"This change is blocked", "1 block, 0 warn, 0 info, 1 not checked",
		"IPv4, today", "IPv4, after the change",
		"a &lt;b&gt; c", "Network/calico", "nobody looked", "node-1", "<svg"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("%q is not on the page", want)
		}
	}
	page, err = Findings(finding.NewResult(nil, nil), nil)
	if err != nil || strings.Contains(string(page), "<svg") ||
		!strings.Contains(string(page), "No check blocks this change") {
		t.Errorf("an empty result: %v\n%s", err, page)
	}
}
