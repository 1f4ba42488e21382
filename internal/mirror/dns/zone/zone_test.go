package zone_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
)

func set(name, kind string, ttl uint32, values ...string) zone.RRSet {
	return zone.RRSet{Name: name, Type: kind, TTL: ttl, Values: values}
}

// TestState says where a unit stands, whatever a server has.
func TestState(t *testing.T) {
	const name = "www.example.org."
	u := zone.Unit{Name: name, Before: []zone.RRSet{set(name, "A", 60, "192.0.2.1"), set("a-"+name, "TXT", 60, `"x"`)},
		After: []zone.RRSet{set(name, "CNAME", 60, "lb.example.net."), set("cname-"+name, "TXT", 60, `"y"`)}}
	other := func(change func(*[]zone.RRSet)) []zone.RRSet {
		sets := slices.Clone(u.Before)
		change(&sets)
		return sets
	}
	for what, c := range map[string]struct {
		has  []zone.RRSet
		want zone.State
	}{
		"as before":       {u.Before, zone.Before},
		"as after":        {u.After, zone.After},
		"nothing":         {nil, zone.Other},
		"another address": {other(func(s *[]zone.RRSet) { (*s)[0].Values = []string{"192.0.2.9"} }), zone.Other},
		"another TTL":     {other(func(s *[]zone.RRSet) { (*s)[0].TTL = 61 }), zone.Other},
		"no owner":        {other(func(s *[]zone.RRSet) { *s = (*s)[:1] }), zone.Other},
		"IPv6 besides": {other(func(s *[]zone.RRSet) { *s = append(*s, set(name, "AAAA", 60, "2001:db8::1")) }),
			zone.Other},
		"another TXT there": {other(func(s *[]zone.RRSet) { *s = append(*s, set("cname-"+name, "TXT", 60, `"z"`)) }),
			zone.Other},
		"MX, not ours": {other(func(s *[]zone.RRSet) { *s = append(*s, set(name, "MX", 60, "10 mail.")) }),
			zone.Before},
	} {
		if got := u.State(zone.CurrentOf(c.has)); got != c.want {
			t.Errorf("%s: state %d, want %d", what, got, c.want)
		}
	}
	back := zone.Transaction{Units: []zone.Unit{u}}.Inverse()
	if got := back.Units[0].State(zone.CurrentOf(u.After)); got != zone.Before {
		t.Errorf("the inverse: state %d", got)
	}
	absent := u.Absent()
	for _, at := range []zone.Place{{name, "AAAA"}, {name, "CNAME"}, {"cname-" + name, "TXT"}} {
		if !slices.Contains(absent, at) {
			t.Errorf("%v is not demanded to be absent", at)
		}
	}
	if gone, come := u.Changes(); len(gone) != 2 || len(come) != 2 {
		t.Errorf("changes %v, %v", gone, come)
	}
}

// TestHandOver keeps names of ownership records where the types stay, and makes new ones where they do not.
func TestHandOver(t *testing.T) {
	const name, value = "www.example.org.",
		`"heritage=external-dns,external-dns/owner=blue,external-dns/resource=service/a/b"`
	var r zone.Registry
	ownership := []zone.RRSet{set("cname-"+name, "TXT", 60, value), set(name, "TXT", 60, `"v=spf1"`, value)}
	same := r.HandOver(ownership, name, "green", []string{"A"}, []string{"A"})
	if len(same) != 2 || same[0].Name != "cname-"+name || !strings.Contains(same[0].Values[0], "owner=green") ||
		!slices.Contains(same[1].Values, `"v=spf1"`) {
		t.Errorf("same types: %v", same)
	}
	both := r.HandOver(ownership[:1], name, "green", []string{"CNAME"}, []string{"A", "AAAA"})
	if len(both) != 2 || both[0].Name != "a-"+name || both[1].Name != "aaaa-"+name {
		t.Errorf("other types: %v", both)
	}
	if strings.Contains(ownership[0].Values[0], "green") {
		t.Error("the zone itself was changed")
	}
}

func TestCanonical(t *testing.T) {
	for text, want := range map[string]string{"WWW.Example.org": "www.example.org.", "a.": "a.", "*.a.b": "*.a.b."} {
		if got, err := zone.Canonical(text); err != nil || got != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "a b", "http://a", "a..b", strings.Repeat("a", 64) + ".org"} {
		if got, err := zone.Canonical(text); err == nil {
			t.Errorf("%q is taken for %q", text, got)
		}
	}
}

// FuzzOwner demands that a hand-over reads back as the new owner, whatever was there.
func FuzzOwner(f *testing.F) {
	f.Add(`"heritage=external-dns,external-dns/owner=blue"`, "green")
	f.Add(`heritage=external-dns`, "")
	f.Fuzz(func(t *testing.T, value, owner string) {
		was, ok := zone.Owner(value)
		if !ok || was == "" || strings.ContainsAny(owner, `,"`) {
			return
		}
		if got, ok := zone.Owner(zone.WithOwner(value, owner)); !ok || got != owner {
			t.Errorf("%q with owner %q reads as %q, %v", value, owner, got, ok)
		}
	})
}

// A record's text comes from outside: it reads no file of this machine, and is one record.
func TestParseRR(t *testing.T) {
	file := filepath.Join(t.TempDir(), "zone")
	if err := os.WriteFile(file, []byte("secret.example.org. 60 IN A 192.0.2.1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"$INCLUDE " + file, "a. 60 IN A 192.0.2.1\n$INCLUDE " + file,
		"a. 60 IN A 192.0.2.1\nb. 60 IN A 192.0.2.1"} {
		if rr, err := zone.ParseRR(text); err == nil {
			t.Errorf("%q became %v", text, rr)
		}
	}
	if rr, err := zone.ParseRR("$ORIGIN example.org.\na 60 IN A 192.0.2.1"); err != nil ||
		rr.Header().Name != "a.example.org." {
		t.Error(rr, err)
	}
}
