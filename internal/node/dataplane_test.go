package node

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/theseus-cni/theseus/internal/step"
)

// testdata/dataplane holds what a node of a cluster with Calico v3.31.0 printed, in either data plane.

func calicos(want string) step.Dataplane {
	return step.Dataplane{Want: want, Tables: []string{"ip calico", "ip6 calico"},
		Chains: []string{"cali-*"}, Sets: []string{"cali*"}, Links: []string{"cali*"},
		PerLink: []string{"cali-tw-", "cali-fw-"}}
}

func calicoGuard() step.Guard {
	return step.Guard{Tables: []string{"ip calico"}, Chains: []string{"cali-*"}, Sets: []string{"cali*"},
		Without: []string{"Unknown interface"}, For: step.Duration(time.Minute)}
}

func golden(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "dataplane", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// calicoInIPTables loads a node's own rules and sets, and makes the interface of its pod.
func calicoInIPTables(t *testing.T) {
	t.Helper()
	sh(t, golden(t, "ipset.save"), "ipset", "restore")
	sh(t, golden(t, "iptables.save"), "iptables-nft-restore")
	addLink(t, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "calif4bee9a79a0"}, PeerName: "pod"})
}

// TestDataplane goes from Calico's rules in iptables to those in nftables, and tells what there is on the way.
func TestDataplane(t *testing.T) {
	if !alone(t) {
		return
	}
	n := newNode(t)
	kernel := func(want string) (step.Attestation, error) {
		got, err := n.Do(t.Context(), step.VerbDataplane, args(t, calicos(want)))
		var seen step.Attestation
		if len(got.Result) > 0 {
			if err := json.Unmarshal(got.Result, &seen); err != nil {
				t.Fatal(err)
			}
		}
		return seen, err
	}
	expect := func(when, want, kernelIs string, words string) step.Attestation {
		t.Helper()
		seen, err := kernel(want)
		if seen.Kernel != kernelIs || (err != nil) != (words != "") ||
			err != nil && !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %+v, %v; want %s and %q", when, seen, err, kernelIs, words)
		}
		return seen
	}
	expect("nothing", "", "none", "")
	expect("nothing", step.IPTables, "none", "rules are in none")
	calicoInIPTables(t)
	if seen := expect("iptables", step.IPTables, step.IPTables, ""); seen.Pods != 1 || seen.Chains != 34 ||
		seen.Sets != 5 || len(seen.Bare) > 0 {
		t.Errorf("%+v", seen)
	}
	expect("iptables", step.NFTables, step.IPTables, "rules are in iptables, not in nftables alone")
	addLink(t, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "cali1"}, PeerName: "pod1"})
	expect("a pod without rules", step.IPTables, step.IPTables, "there are no rules for cali1")
	sh(t, "", "ip", "link", "delete", "cali1")

	sh(t, golden(t, "calico.nft"), "nft", "-f", "-")
	expect("both", step.NFTables, "both", "rules are in both")
	for _, table := range []string{"raw", "mangle", "nat", "filter"} {
		sh(t, "", "iptables-nft", "-t", table, "-F")
		sh(t, "", "iptables-nft", "-t", table, "-X")
	}
	expect("sets are left", step.NFTables, step.NFTables, "5 ipsets of iptables are left")
	sh(t, "", "ipset", "destroy")
	if seen := expect("nftables", step.NFTables, step.NFTables, ""); seen.Pods != 1 || len(seen.Bare) > 0 {
		t.Errorf("%+v", seen)
	}
	proof := calicos(step.NFTables)
	proof.Passed = true
	if _, err := n.Do(t.Context(), step.VerbDataplane, args(t, proof)); err == nil ||
		!strings.Contains(err.Error(), "no packet to or from a pod") {
		t.Errorf("no packet crossed, and it is proven: %v", err)
	}
	// What is being written cannot always be read.
	wanted, dir := calicos(step.NFTables), t.TempDir()
	wanted.For = step.Duration(10 * time.Second)
	real, err := exec.LookPath("iptables-nft-save")
	if err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\nmkdir " + dir + "/failed 2>/dev/null && exit 2\nexec " + real + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "iptables-nft-save"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	if _, err := n.Do(t.Context(), step.VerbDataplane, args(t, wanted)); err != nil {
		t.Errorf("rules that could not be read once: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "failed")); err != nil {
		t.Error("nothing failed")
	}
	proof.Want = "ipvs"
	if _, err := n.Do(t.Context(), step.VerbDataplane, args(t, proof)); err == nil {
		t.Error("an unknown data plane was looked for")
	}
}

// TestGuardIPTables: what Calico's own rules in iptables deny stays denied when they are gone, and nothing of the copy
// is left after it.
func TestGuardIPTables(t *testing.T) {
	if !alone(t) {
		return
	}
	n := newNode(t)
	order := calicoGuard()
	clean := func() string {
		return sh(t, "", "sh", "-c", "(iptables-nft-save; ipset list -n) | grep -E 'theseus|thli' || true")
	}
	do(t, n, step.VerbGuard, order)
	calicoInIPTables(t)
	before := sh(t, "", "sh", "-c", "iptables-nft-save -t filter | grep -v '^#'; ipset save | sort")
	do(t, n, step.VerbGuard, order)
	do(t, n, step.VerbGuard, order) // again, in place of the first
	rules := sh(t, "", "iptables-nft-save", "-t", "filter")
	for _, want := range []string{"-A FORWARD -m set --match-set theseus-armed4 src -m comment --comment " +
		"theseus-guard -j thli-FORWARD",
		"-A thli-to-wl-dispatch -o calif4bee9a79a0 -g thli-tw-calif4bee9a79a0", "--match-set thli40all-vxlan-net"} {
		if strings.Count(rules, want) < 1 {
			t.Errorf("%q is not in:\n%s", want, rules)
		}
	}
	if strings.Count(rules, "theseus-guard") != 3 {
		t.Errorf("want one jump in each of three chains:\n%s", rules)
	}
	for line := range strings.Lines(rules) {
		if strings.Contains(line, "-A thli-") && (strings.Contains(line, "cali:") || strings.Contains(line, "cali-") ||
			strings.Contains(line, "cali40")) ||
			strings.HasPrefix(line, "-A thli-to-wl-dispatch -j DROP") {
			t.Errorf("the owner would take this for its own, or it drops what starts now: %s", line)
		}
	}
	do(t, n, step.VerbRelease, order)
	if after := sh(t, "", "sh", "-c",
		"iptables-nft-save -t filter | grep -v '^#'; ipset save | sort"); after != before {
		t.Errorf("released, the rules are not as before:\n%s\nbefore:\n%s", after, before)
	}

	// A packet for the pod that its policy denies, and one that it allows: they are sent through the loopback chain
	// OUTPUT.
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	sh(t, "", "iptables-nft", "-I", "cali-OUTPUT", "1", "-o", "lo", "-g", "cali-tw-calif4bee9a79a0")
	denied, allowed := "9", "53"
	ports := func(when string, open bool) {
		t.Helper()
		if passes(t, denied) != open || !passes(t, allowed) {
			t.Errorf("%s: port 9 passes: %t, port 53 passes: %t", when, passes(t, denied), passes(t, allowed))
		}
	}
	ports("with Calico's rules", false)
	do(t, n, step.VerbGuard, order)
	sh(t, "", "iptables-nft", "-D", "OUTPUT", "-m", "comment", "--comment",
		"cali:tVnHkvAo15HuiPy0", "-j", "cali-OUTPUT")
	ports("guarded", false)
	do(t, n, step.VerbRelease, order)
	ports("released", true)
	if left := clean(); left != "" {
		t.Errorf("left: %s", left)
	}

	sh(t, "", "iptables-nft", "-A", "OUTPUT", "-j", "cali-OUTPUT")
	order.For = step.Duration(time.Second)
	do(t, n, step.VerbGuard, order)
	sh(t, "", "iptables-nft", "-D", "OUTPUT", "-j", "cali-OUTPUT")
	for !passes(t, denied) { // nobody releases it; the test's own limit ends a guard that never ends
		time.Sleep(50 * time.Millisecond)
	}
}
