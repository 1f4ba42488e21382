package node

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/theseus-cni/theseus/internal/step"
)

// flannelResidue is what flannel with kube-router leaves, plus one single rule.
var flannelResidue = step.Residue{
	Links:        []string{"flannel.1", "cni0"},
	Chains:       []string{"FLANNEL-*", "KUBE-ROUTER-*", "KUBE-POD-FW-*", "KUBE-NWPLCY-*"},
	RuleComments: []string{"flanneld masq"},
	IPSets:       []string{"KUBE-DST-*", "KUBE-SRC-*"},
	Routes:       []string{"198.19.0.0/20"},
	ConfFiles:    []string{"10-flannel.conflist"},
	Binaries:     []string{"flannel"},
	Paths:        []string{"/run/flannel", "/var/lib/cni/flannel*"},
}

// weaveResidue is what Weave Net leaves in iptables, with the sets that its rules match on.
var weaveResidue = step.Residue{
	Chains:       []string{"WEAVE", "WEAVE-*"},
	RuleComments: []string{"Block non-local access to Weave Net control port"},
	RuleLinks:    []string{"weave"},
	IPSets:       []string{"weave-*"},
}

func load(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func tablesOf(t *testing.T, text string) []table {
	t.Helper()
	tables, err := parseSave(text)
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

func TestScrub(t *testing.T) {
	got := scrub(tablesOf(t, load(t, "flannel.save")), flannelResidue)
	want := `*filter
-D INPUT -m comment --comment "kube-router netpol - 4IA2OSFRMVNDXBVV" -j KUBE-ROUTER-INPUT
-D FORWARD -m comment --comment "kube-router netpol - TEMCG2JMHZYE7H7T" -j KUBE-ROUTER-FORWARD
-D FORWARD -m comment --comment "flanneld forward" -j FLANNEL-FWD
-D OUTPUT -m comment --comment "kube-router netpol - VEAAIY32XVBHCSCY" -j KUBE-ROUTER-OUTPUT
-D MINE-EXTRA -s 198.19.0.0/24 -j FLANNEL-FWD
-F FLANNEL-FWD
-F KUBE-NWPLCY-DEFAULT
-F KUBE-POD-FW-Q7BYLJWXJKZ2ITRW
-F KUBE-ROUTER-FORWARD
-F KUBE-ROUTER-INPUT
-F KUBE-ROUTER-OUTPUT
-X FLANNEL-FWD
-X KUBE-NWPLCY-DEFAULT
-X KUBE-POD-FW-Q7BYLJWXJKZ2ITRW
-X KUBE-ROUTER-FORWARD
-X KUBE-ROUTER-INPUT
-X KUBE-ROUTER-OUTPUT
COMMIT
*nat
-D POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
-D POSTROUTING -s 198.19.0.0/24 ! -d 198.19.0.0/20 -m comment --comment "flanneld masq" -j MASQUERADE
-F FLANNEL-POSTRTG
-X FLANNEL-POSTRTG
COMMIT
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestScrubByLink: Weave Net's rules in built-in chains carry no comment and jump to no chain of its own;
// they are known by its bridge.
func TestScrubByLink(t *testing.T) {
	got := scrub(tablesOf(t, load(t, "weave.save")), weaveResidue)
	want := `*filter
-D INPUT -d 127.0.0.1/32 -p tcp -m tcp --dport 6784 -m addrtype ! --src-type LOCAL -m conntrack ! --ctstate RELATED,ESTABLISHED -m comment --comment "Block non-local access to Weave Net control port" -j DROP
-D INPUT -i weave -j WEAVE-NPC-EGRESS
-D FORWARD -i weave -m comment --comment "NOTE: this must go before \'-j KUBE-FORWARD\'" -j WEAVE-NPC-EGRESS
-D FORWARD -o weave -m comment --comment "NOTE: this must go before \'-j KUBE-FORWARD\'" -j WEAVE-NPC
-D FORWARD -o weave -m state --state NEW -j NFLOG --nflog-group 86
-D FORWARD -o weave -j DROP
-D FORWARD -i weave ! -o weave -j ACCEPT
-D FORWARD -o weave -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-F WEAVE-NPC
-F WEAVE-NPC-DEFAULT
-F WEAVE-NPC-EGRESS
-F WEAVE-NPC-EGRESS-ACCEPT
-F WEAVE-NPC-EGRESS-CUSTOM
-F WEAVE-NPC-EGRESS-DEFAULT
-F WEAVE-NPC-INGRESS
-X WEAVE-NPC
-X WEAVE-NPC-DEFAULT
-X WEAVE-NPC-EGRESS
-X WEAVE-NPC-EGRESS-ACCEPT
-X WEAVE-NPC-EGRESS-CUSTOM
-X WEAVE-NPC-EGRESS-DEFAULT
-X WEAVE-NPC-INGRESS
COMMIT
*nat
-D POSTROUTING -j WEAVE
-F WEAVE
-X WEAVE
COMMIT
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestScrubLeavesTheRest: whatever the patterns, built-in chains stay, and so do rules that neither lie in
// the residue's chains, nor jump to them, nor carry its comments.
func TestScrubLeavesTheRest(t *testing.T) {
	tables := tablesOf(t, load(t, "flannel.save"))
	for _, chains := range [][]string{{"FORWARD", "POSTROUTING"}, {"NOTHING-*"}, nil} {
		if script := scrub(tables, step.Residue{Chains: chains}); script != "" {
			t.Errorf("chains %v: the script should be empty:\n%s", chains, script)
		}
	}
	script := scrub(tables, step.Residue{Chains: []string{"*"}})
	for line := range strings.Lines(script) {
		words := strings.Fields(line)
		if words[0] == "-F" || words[0] == "-X" {
			switch words[1] {
			case "INPUT", "FORWARD", "OUTPUT", "PREROUTING", "POSTROUTING":
				t.Errorf("a built-in chain is touched: %s", line)
			}
		}
	}
	if strings.Contains(script, "remark") {
		t.Error("a rule that only mentions a chain in its comment is removed")
	}
}

func TestParseSave(t *testing.T) {
	tables := tablesOf(t, load(t, "flannel.save"))
	if len(tables) != 3 || tables[1].name != "filter" || len(tables[1].chains) != 12 || len(tables[1].rules) != 20 {
		t.Fatalf("tables: %d, %+v", len(tables), tables[1])
	}
	last := tables[1].rules[5]
	if got, want := last.comment(), `the user's "own" FLANNEL-FWD remark`; got != want {
		t.Errorf("comment %q, want %q", got, want)
	}
	if last.target() != "ACCEPT" {
		t.Errorf("target %q, want ACCEPT", last.target())
	}
	for _, bad := range []string{
		"-A INPUT -j ACCEPT\n",
		"*nat\n:POSTROUTING\n",
		"*nat\n-I POSTROUTING 1 -j ACCEPT\n",
		"# Table `nat' is incompatible, use 'nft' tool.\n",
	} {
		if _, err := parseSave(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		spec string
		want []string
	}{
		{"", nil},
		{"-s 198.19.0.0/20 -j ACCEPT", []string{"-s", "198.19.0.0/20", "-j", "ACCEPT"}},
		{`--comment "two words" -j X`, []string{"--comment", "two words", "-j", "X"}},
		{`--comment "a \"quoted\" \\ word"`, []string{"--comment", `a "quoted" \ word`}},
		{`--comment ""`, []string{"--comment", ""}},
	} {
		if diff := cmp.Diff(c.want, split(c.spec)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.spec, diff)
		}
	}
}

func TestFind(t *testing.T) {
	w := world{
		links:  []string{"lo", "eth0", "cni0", "flannel.1", "flannel.10"},
		tables: append(tablesOf(t, load(t, "flannel.save")), tablesOf(t, load(t, "flannel.save"))...),
		ipsets: []string{"KUBE-DST-3YNVZWWGX3UQQ4VQ", "mine"},
		routes: []netip.Prefix{netip.MustParsePrefix("198.19.1.0/24"), netip.MustParsePrefix("198.19.16.0/24"),
			netip.MustParsePrefix("198.19.0.0/16")},
		confFiles: []string{"10-calico.conflist", "10-flannel.conflist"},
		binaries:  []string{"calico", "flannel", "portmap"},
		paths:     []string{"/run/flannel"},
	}
	got, err := find(flannelResidue, w)
	if err != nil {
		t.Fatal(err)
	}
	want := step.Residue{
		Links: []string{"cni0", "flannel.1"},
		Chains: []string{"FLANNEL-FWD", "FLANNEL-POSTRTG", "KUBE-NWPLCY-DEFAULT", "KUBE-POD-FW-Q7BYLJWXJKZ2ITRW",
			"KUBE-ROUTER-FORWARD", "KUBE-ROUTER-INPUT", "KUBE-ROUTER-OUTPUT"},
		RuleComments: []string{"flanneld masq"},
		IPSets:       []string{"KUBE-DST-3YNVZWWGX3UQQ4VQ"},
		Routes:       []string{"198.19.1.0/24"},
		ConfFiles:    []string{"10-flannel.conflist"},
		Binaries:     []string{"flannel"},
		Paths:        []string{"/run/flannel"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if _, err := find(step.Residue{Routes: []string{"0.0.0.0/0"}}, w); err == nil {
		t.Error("a residue of every route was accepted")
	}
}

func TestParseNFTables(t *testing.T) {
	got, err := parseNFTables(`{"nftables": [{"metainfo": {"version": "1.0.6", "json_schema_version": 1}},
		{"table": {"family": "ip", "name": "flannel-ipv4", "handle": 3}}, {"table": {"family": "inet", "name": "mine", "handle": 4}}]}`)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"ip flannel-ipv4", "inet mine"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
