package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// FuzzParseSave holds that what is read of iptables' rules is the same when it is written and read again, and that no
// question about a rule fails, however odd it is.
func FuzzParseSave(f *testing.F) {
	f.Add("*filter\n:INPUT DROP [0:0]\n:cali-INPUT - [0:0]\n" +
		"-A INPUT -i eth0 -m comment --comment \"a \\\"b\\\" c\" -j cali-INPUT\nCOMMIT\n")
	f.Add("# Warning: table is incompatible, use 'nft' tool.\n*nat\n-A X\n-A POSTROUTING -s 10.0.0.0/8 -o\n")
	f.Add("-A INPUT -j DROP")
	f.Fuzz(func(t *testing.T, text string) {
		tables, err := parseSave(text)
		if err != nil {
			return
		}
		var again strings.Builder
		for _, table := range tables {
			fmt.Fprintf(&again, "*%s\n", table.name)
			for _, c := range table.chains {
				policy := c.policy
				if policy == "" {
					policy = "-"
				}
				fmt.Fprintf(&again, ":%s %s [0:0]\n", c.name, policy)
			}
			for _, r := range table.rules {
				r.links()
				r.target()
				fmt.Fprintf(&again, "-A %s %s\n", r.chain, r.spec)
			}
			again.WriteString("COMMIT\n")
		}
		same := func(x, y table) bool {
			trimmed := func(x, y rule) bool {
				return x.chain == y.chain && strings.TrimSpace(x.spec) == strings.TrimSpace(y.spec)
			}
			return strings.TrimSpace(x.name) == strings.TrimSpace(y.name) && slices.Equal(x.chains, y.chains) &&
				slices.EqualFunc(x.rules, y.rules, trimmed)
		}
		if got, err := parseSave(again.String()); err != nil || !slices.EqualFunc(tables, got, same) {
			t.Errorf("%q is read as\n%+v, and that, written again, as\n%+v, %v", text, tables, got, err)
		}
	})
}

// FuzzParseNFTables holds that what nft prints never makes the agent panic.
func FuzzParseNFTables(f *testing.F) {
	f.Add(`{"nftables": [{"metainfo": {"version": "1.0.6"}}, {"table": {"family": "ip", "name": "calico", "handle": 1}}]}`)
	f.Add(`{"nftables": [null, {"table": null}, 3]}`)
	f.Fuzz(func(t *testing.T, text string) {
		tables, err := parseNFTables(text)
		if err != nil && len(tables) > 0 {
			t.Errorf("%q, and all the same %v", tables, err)
		}
	})
}
