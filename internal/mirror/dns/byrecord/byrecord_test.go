package byrecord

import (
	"strings"
	"testing"

	"github.com/libdns/libdns"
	"github.com/miekg/dns"
)

// TestParse reads what providers say, and finds it again in what is written.
func TestParse(t *testing.T) {
	z := &Zone{Name: "example.org."}
	for _, c := range []struct {
		record libdns.RR
		want   string
	}{
		{libdns.RR{Name: "www", Type: "A", Data: "192.0.2.1"}, "www.example.org.\t0\tIN\tA\t192.0.2.1"},
		{libdns.RR{Name: "@", Type: "AAAA", Data: "2001:db8::1"}, "example.org.\t0\tIN\tAAAA\t2001:db8::1"},
		{libdns.RR{Name: "*.a", Type: "CNAME", Data: "lb.example.net"},
			"*.a.example.org.\t0\tIN\tCNAME\tlb.example.net."},
		{libdns.RR{Name: "a-www", Type: "TXT", Data: `heritage=external-dns,"x" \ ` + "\x7f"},
			"a-www.example.org.\t0\tIN\tTXT\t" + `"heritage=external-dns,\"x\" \\ \127"`},
	} {
		rr, err := z.parse(c.record)
		if err != nil || rr.String() != c.want {
			t.Errorf("%+v: %v, %v", c.record, rr, err)
			continue
		}
		back, err := z.record(rr)
		if err != nil || strings.TrimSuffix(back.RR().Data, ".") != c.record.Data || back.RR().Name != c.record.Name {
			t.Errorf("%+v becomes %+v, %v", c.record, back, err)
		}
	}
	if rr, err := z.parse(libdns.RR{Name: "www", Type: "ALIAS", Data: "x"}); rr != nil || err != nil {
		t.Errorf("a type of the provider's own: %v, %v", rr, err)
	}
	if _, err := z.parse(libdns.RR{Name: "www", Type: "A", Data: "nonsense"}); err == nil {
		t.Error("nonsense is read")
	}
}

// FuzzText demands that every text survives the form that records have, on the wire too.
func FuzzText(f *testing.F) {
	f.Add(`a "quoted" \ text`)
	f.Add(strings.Repeat("ä", 300))
	f.Fuzz(func(t *testing.T, given string) {
		if len(given) > 4000 {
			return
		}
		parts := chunks(given)
		if got := text(parts); got != given {
			t.Fatalf("%q becomes %q", given, got)
		}
		rr := &dns.TXT{Hdr: dns.RR_Header{Name: "a.", Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: parts}
		wire := make([]byte, 8192)
		n, err := dns.PackRR(rr, wire, 0, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := dns.UnpackRR(wire[:n], 0)
		if err != nil || text(again.(*dns.TXT).Txt) != given {
			t.Fatalf("%q becomes %v, %v on the wire", given, again, err)
		}
	})
}
