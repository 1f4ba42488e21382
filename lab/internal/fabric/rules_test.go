package fabric

import (
	"os/exec"
	"strings"
	"testing"
)

func TestRuleset(t *testing.T) {
	tests := []struct {
		name   string
		faults map[string]Faults
		want   string
	}{
		{"none", nil, `table bridge faults
delete table bridge faults
table bridge faults {
  chain from {
    type filter hook prerouting priority 0; policy accept;
  }
  chain to {
    type filter hook postrouting priority 0; policy accept;
  }
}
`},
		{"all kinds", map[string]Faults{
			"a-node-2": {Loss: 0.01, Drops: []Drop{{"udp", 8472}, {"tcp", 10250}}},
			"a-node-1": {Partitioned: true},
			"a-node-3": {Loss: 1},
		}, `table bridge faults
delete table bridge faults
table bridge faults {
  chain from {
    type filter hook prerouting priority 0; policy accept;
    iifname "a-node-1" counter drop
    iifname "a-node-2" numgen random mod 100000 < 1000 counter drop
    iifname "a-node-2" ether type ip udp dport 8472 counter drop
    iifname "a-node-2" ether type ip tcp dport 10250 counter drop
    iifname "a-node-3" counter drop
  }
  chain to {
    type filter hook postrouting priority 0; policy accept;
    oifname "a-node-1" counter drop
    oifname "a-node-2" numgen random mod 100000 < 1000 counter drop
    oifname "a-node-2" ether type ip udp dport 8472 counter drop
    oifname "a-node-2" ether type ip tcp dport 10250 counter drop
    oifname "a-node-3" counter drop
  }
}
`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Ruleset(tt.faults)
			if got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
			nftAccepts(t, got)
		})
	}
}

// Any share at all must give rules that nft accepts.
func TestRulesetOfEveryLoss(t *testing.T) {
	for _, loss := range []float64{1e-9, 0.00001, 0.5, 0.99999, 0.999999, 1} {
		nftAccepts(t, Ruleset(map[string]Faults{"p": {Loss: loss}}))
	}
}

// nftAccepts asks the real tool, in a network namespace that ends with it.
func nftAccepts(t *testing.T, rules string) {
	t.Helper()
	cmd := exec.Command("unshare", "--net", "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("nft: %v\n%s\n%s", err, out, rules)
	}
}

func TestParseDrop(t *testing.T) {
	for text, want := range map[string]Drop{"udp:8472": {"udp", 8472}, "tcp:1": {"tcp", 1}} {
		if got, err := ParseDrop(text); err != nil || got != want {
			t.Errorf("ParseDrop(%q) = %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "udp", "udp:", "udp:0", "udp:65536", "icmp:1", "8472", "tcp:80:81"} {
		if got, err := ParseDrop(text); err == nil {
			t.Errorf("ParseDrop(%q) = %v, want an error", text, got)
		}
	}
}

func TestParseLoss(t *testing.T) {
	for text, want := range map[string]float64{"1%": 0.01, "0.25": 0.25, "100%": 1, "0": 0} {
		if got, err := ParseLoss(text); err != nil || got != want {
			t.Errorf("ParseLoss(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "%", "101%", "-1%", "2", "NaN", "much"} {
		if got, err := ParseLoss(text); err == nil {
			t.Errorf("ParseLoss(%q) = %v, want an error", text, got)
		}
	}
}

func TestFaultsString(t *testing.T) {
	f := Faults{Partitioned: true, Loss: 0.01, Drops: []Drop{{"udp", 8472}}}
	if got, want := f.String(), "partitioned, loss 1%, drops udp:8472"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := (Faults{}).String(); got != "ok" {
		t.Errorf("got %q, want ok", got)
	}
}
