package zone_test

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
)

// FuzzParseRR: what a provider says of a record is one record or an error, and reads no file of this machine.
func FuzzParseRR(f *testing.F) {
	for _, seed := range []string{"a. 60 IN A 192.0.2.1", "$ORIGIN b.\na 60 IN TXT \"x\" \"y\"",
		"a. IN CNAME b.", "$INCLUDE /etc/hosts", "$GENERATE 1-9 a$ A 192.0.2.$"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rr, err := zone.ParseRR(text)
		if err != nil || rr == nil {
			return
		}
		if again, err := zone.ParseRR(rr.String()); err == nil && again != nil &&
			again.Header().Rrtype != rr.Header().Rrtype {
			t.Errorf("%v is read as %v", rr, again)
		}
	})
}
