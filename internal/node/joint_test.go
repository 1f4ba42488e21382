package node

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/theseus-cni/theseus/internal/step"
)

var networks = step.JoinArgs{Old: []string{"198.19.0.0/20"}, New: []string{"198.19.16.0/20"}}

func TestExemptions(t *testing.T) {
	got, err := exemptions(step.JoinArgs{
		Old: []string{"198.19.0.1/20", "2001:db8::/64"}, New: []string{"198.19.16.0/20", "2001:db8:1::/64"}})
	if err != nil {
		t.Fatal(err)
	}
	var specs []string
	for _, f := range []family{ip4, ip6} {
		for _, r := range got[f] {
			specs = append(specs, string(f)+" "+r.spec)
		}
	}
	want := []string{
		`iptables -s 198.19.0.0/20 -d 198.19.16.0/20 -m comment --comment "theseus: joint phase" -j ACCEPT`,
		`iptables -s 198.19.16.0/20 -d 198.19.0.0/20 -m comment --comment "theseus: joint phase" -j ACCEPT`,
		`ip6tables -s 2001:db8::/64 -d 2001:db8:1::/64 -m comment --comment "theseus: joint phase" -j ACCEPT`,
		`ip6tables -s 2001:db8:1::/64 -d 2001:db8::/64 -m comment --comment "theseus: joint phase" -j ACCEPT`,
	}
	if diff := cmp.Diff(want, specs); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	all, err := exemptions(step.JoinArgs{Old: networks.Old, New: networks.New, Within: true})
	if err != nil || len(all[ip4]) != 3 || all[ip4][2].spec != `-s 198.19.16.0/20 -d 198.19.16.0/20 `+
		`-m mark --mark 0x0/0x6000 -m comment --comment "theseus: joint phase" -j ACCEPT` {
		t.Errorf("within the target's range: %v, %v", all, err)
	}
	for _, bad := range []step.JoinArgs{{}, {Old: []string{"198.19.0.0/20"}}, {Old: []string{"x"}, New: []string{"y"}},
		{Old: []string{"198.19.0.0/20"}, New: []string{"2001:db8::/64"}}} {
		if _, err := exemptions(bad); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
	if got, err := exemptions(step.JoinArgs{Old: []string{"198.19.0.0/20"},
		New: []string{"198.19.0.0/20"}}); err != nil || len(got) > 0 {
		t.Errorf("within one range, where a pod may reach itself through a Service: %v, %v", got, err)
	}
}

func TestPutFirst(t *testing.T) {
	const (
		out = `-A POSTROUTING -s 198.19.0.0/20 -d 198.19.16.0/20 -m comment --comment "theseus: joint phase" -j ACCEPT` +
			"\n"
		back = `-A POSTROUTING -s 198.19.16.0/20 -d 198.19.0.0/20 -m comment --comment "theseus: joint phase" -j ACCEPT` +
			"\n"
		stale = `-A POSTROUTING -s 198.19.32.0/20 -d 198.19.0.0/20 -m comment --comment "theseus: joint phase" -j ACCEPT` +
			"\n"
		masq = `-A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG` + "\n"
	)
	insert :=
		`-I POSTROUTING 1 -s 198.19.16.0/20 -d 198.19.0.0/20 -m comment --comment "theseus: joint phase" -j ACCEPT` +
			"\n" +
			`-I POSTROUTING 1 -s 198.19.0.0/20 -d 198.19.16.0/20 -m comment --comment "theseus: joint phase" -j ACCEPT` +
			"\n"
	remove := func(rules string) string { return "-D" + rules[2:] }
	script := func(lines string) string { return "*nat\n" + lines + "COMMIT\n" }
	wanted, err := exemptions(networks)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, rules string
		want        []rule
		script      string
	}{
		{"nothing there", "-P POSTROUTING ACCEPT\n", wanted[ip4], script(insert)},
		{"another's rule only", masq, wanted[ip4], script(insert)},
		{"as wanted", out + back + masq, wanted[ip4], ""},
		{"in the other order", back + out + masq, wanted[ip4], ""},
		{"pushed down", masq + out + back, wanted[ip4], script(remove(out) + remove(back) + insert)},
		{"one is missing", out + masq, wanted[ip4], script(remove(out) + insert)},
		{"of other networks", out + back + stale, wanted[ip4],
			script(remove(out) + remove(back) + remove(stale) + insert)},
		{"twice", out + out + masq, wanted[ip4], script(remove(out) + remove(out) + insert)},
		{"part", masq + out + back, nil, script(remove(out) + remove(back))},
		{"parted", masq, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.script, putFirst(parseChain(c.rules), c.want)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestRPFilter(t *testing.T) {
	type values = map[string]int
	for _, c := range []struct {
		name           string
		before, loosen values
		later, tighten values // later: before part, with what others did
	}{
		{"nothing is strict", values{"all": 0, "default": 0, "eth0": 2}, values{},
			values{"all": 0, "default": 0, "eth0": 2}, values{}},
		{"strict is loosened and restored, off stays off", values{"all": 1, "default": 1, "eth0": 1, "lo": 0},
			values{"all": 2, "default": 2, "eth0": 2}, values{"all": 2, "default": 2, "eth0": 2, "lo": 0},
			values{"all": 1, "default": 1, "eth0": 1}},
		{"an interface born under the loosened default", values{"all": 0, "default": 1}, values{"default": 2},
			values{"all": 0, "default": 2, "tunnel": 2}, values{"default": 1, "tunnel": 1}},
		{"somebody else decided since", values{"all": 1}, values{"all": 2}, values{"all": 0}, values{}},
		{"loose from the start, strict by default", values{"default": 1, "eth0": 2}, values{"default": 2},
			values{"default": 2, "eth0": 2}, values{"default": 1}},
		{"an interface that went", values{"all": 0, "cni0": 1}, values{"cni0": 2}, values{"all": 0}, values{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := loosen(c.before)
			if diff := cmp.Diff(c.loosen, set); diff != "" {
				t.Errorf("loosen (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.tighten, tighten(c.later, c.before)); diff != "" {
				t.Errorf("tighten (-want +got):\n%s", diff)
			}
		})
	}
}
