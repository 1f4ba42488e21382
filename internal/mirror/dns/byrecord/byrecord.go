// Package byrecord changes zones at providers through libdns. None of these offers compare-and-swap: the package reads,
// compares, writes and reads again, so it overwrites a concurrent change between the two. Providers also cannot change
// several records atomically: the package resumes a change that was interrupted.
package byrecord

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/libdns/libdns"
	"github.com/miekg/dns"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// Provider has the methods of libdns that are needed.
type Provider interface {
	libdns.RecordGetter
	libdns.RecordSetter
	libdns.RecordDeleter
}

// Zone is a zone at a provider.
type Zone struct {
	Name string // canonical
	Provider
	// Servers answer for the zone, as host:port: they are asked for the SOA where the provider does not list it.
	Servers []string
}

// timeout bounds one question to a name server.
const timeout = 5 * time.Second

// Piecemeal returns true: a transaction may be interrupted in the middle of a unit.
func (z *Zone) Piecemeal() bool { return true }

// Load reads the whole zone.
func (z *Zone) Load(ctx context.Context) (*zone.Zone, error) {
	records, err := z.records(ctx)
	if err != nil {
		return nil, err
	}
	loaded := &zone.Zone{Name: z.Name, Sets: zone.FromRRs(records)}
	for _, rr := range records {
		if soa, ok := rr.(*dns.SOA); ok {
			loaded.Negative = min(soa.Hdr.Ttl, soa.Minttl)
			return loaded, nil
		}
	}
	loaded.Negative, err = z.negative(ctx)
	return loaded, err
}

// negative asks the name servers for how long resolvers keep that a name is not there.
func (z *Zone) negative(ctx context.Context) (uint32, error) {
	err := errors.New("no name server of it is known")
	for _, server := range z.Servers {
		m := new(dns.Msg)
		m.SetQuestion(z.Name, dns.TypeSOA)
		var answer *dns.Msg
		if answer, _, err = (&dns.Client{Timeout: timeout}).ExchangeContext(ctx, m, server); err != nil {
			continue
		}
		for _, rr := range answer.Answer {
			if soa, ok := rr.(*dns.SOA); ok {
				return min(soa.Hdr.Ttl, soa.Minttl), nil
			}
		}
		err = fmt.Errorf("%s has none", server)
	}
	return 0, engine.WithHint(fmt.Errorf("the SOA of %s: %w", z.Name, outage.Steady(err)),
		"name the zone's servers as `authoritative` in the zones file")
}

// records reads all records of the zone that DNS knows the type of.
func (z *Zone) records(ctx context.Context) ([]dns.RR, error) {
	found, err := z.GetRecords(ctx, z.Name)
	if err != nil {
		return nil, z.failed("reading", err)
	}
	var records []dns.RR
	for _, one := range found {
		rr, err := z.parse(one.RR())
		if err != nil {
			return nil, err
		}
		if rr != nil {
			records = append(records, rr)
		}
	}
	return records, nil
}

// parse makes a record of what the provider says; nil of a type that DNS does not have, such as an alias of the
// provider's own.
func (z *Zone) parse(r libdns.RR) (dns.RR, error) {
	name := dns.CanonicalName(libdns.AbsoluteName(r.Name, z.Name))
	ttl := uint32(min(r.TTL/time.Second, math.MaxInt32))
	data := r.Data
	switch dns.StringToType[r.Type] {
	case dns.TypeNone:
		return nil, nil
	case dns.TypeTXT:
		return &dns.TXT{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: ttl},
			Txt: chunks(data)}, nil
	case dns.TypeCNAME:
		data = dns.Fqdn(data)
	}
	rr, err := zone.ParseRR(fmt.Sprintf("$ORIGIN %s\n%s %d IN %s %s", z.Name, name, ttl, r.Type, data))
	if err != nil || rr == nil {
		return nil, fmt.Errorf("%s: the provider has the record %s %s %s, which cannot be read: %w",
			z.Name, r.Name, r.Type, r.Data, err)
	}
	return rr, nil
}

// chunks are a text in the form in which records hold it: parts of at most 255 bytes, escaped.
func chunks(text string) []string {
	var all []string
	for chunk := range slices.Chunk([]byte(text), 255) {
		var b strings.Builder
		for _, c := range chunk {
			switch {
			case c == '"' || c == '\\':
				b.WriteByte('\\')
				b.WriteByte(c)
			case c < ' ' || c > '~':
				fmt.Fprintf(&b, "\\%03d", c)
			default:
				b.WriteByte(c)
			}
		}
		all = append(all, b.String())
	}
	if all == nil {
		return []string{""}
	}
	return all
}

// text is chunks backwards.
func text(chunks []string) string {
	var b []byte
	joined := strings.Join(chunks, "")
	for i := 0; i < len(joined); i++ {
		digit := func(at int) bool { return at < len(joined) && joined[at] >= '0' && joined[at] <= '9' }
		switch {
		case joined[i] != '\\' || i+1 == len(joined):
			b = append(b, joined[i])
		case digit(i+1) && digit(i+2) && digit(i+3):
			b = append(b, (joined[i+1]-'0')*100+(joined[i+2]-'0')*10+joined[i+3]-'0')
			i += 3
		default:
			i++
			b = append(b, joined[i])
		}
	}
	return string(b)
}

// Read returns the provider's current record sets at places.
func (z *Zone) Read(ctx context.Context, places []zone.Place) (zone.Current, error) {
	records, err := z.records(ctx)
	if err != nil {
		return nil, err
	}
	all := zone.CurrentOf(zone.FromRRs(records))
	current := zone.Current{}
	for _, at := range places {
		if len(all[at]) > 0 {
			current[at] = all[at]
		}
	}
	return current, nil
}

// Commit reads, compares, writes, and reads again. It resumes units that were already changed completely or partly.
func (z *Zone) Commit(ctx context.Context, t zone.Transaction) error {
	if err := replaceable(t); err != nil {
		return err
	}
	current, err := z.Read(ctx, t.Places())
	if err != nil {
		return err
	}
	var gone, come []zone.RRSet
	for _, u := range t.Units {
		if u.State(current) == zone.Other && !u.Between(current) {
			return fmt.Errorf("%s: %w: %s", z.Name, zone.ErrConflict, u.Differs(current))
		}
		left, arrived := u.Changes()
		for _, set := range arrived {
			if !slices.ContainsFunc(current[zone.Place{Name: set.Name, Type: set.Type}], set.Equal) {
				come = append(come, set)
			}
		}
		for _, set := range left {
			if !slices.ContainsFunc(arrived,
				func(o zone.RRSet) bool { return o.Name == set.Name && o.Type == set.Type }) &&
				len(current[zone.Place{Name: set.Name, Type: set.Type}]) > 0 {
				gone = append(gone, set)
			}
		}
	}
	if err := z.write(ctx, gone, come); err != nil {
		return err
	}
	if current, err = z.Read(ctx, t.Places()); err != nil {
		return err
	}
	for _, u := range t.Units {
		switch {
		case u.State(current) == zone.After:
		case u.Between(current):
			return fmt.Errorf("%s: %w: the provider does not show what was written: %s",
				z.Name, engine.ErrUnavailable, u.Differs(current))
		default:
			return fmt.Errorf("%s: %w: %s", z.Name, zone.ErrConflict, u.Differs(current))
		}
	}
	return nil
}

// replaceable refuses what would leave a name without an address for a moment: sets of another type.
func replaceable(t zone.Transaction) error {
	types := func(sets []zone.RRSet) []string {
		var all []string
		for _, set := range sets {
			if set.IsAddress() {
				all = append(all, set.Type)
			}
		}
		slices.Sort(all)
		return all
	}
	for _, u := range t.Units {
		before, after := types(u.Before), types(u.After)
		if !slices.Equal(before, after) {
			return engine.WithHint(fmt.Errorf("%s: %w: it would change from %s to %s, and have no address in "+
				"between", u.Name, zone.ErrRefused,
				strings.Join(before, " and "), strings.Join(after, " and ")), "give both clusters' load balancers "+
				"addresses "+
				"of the same type: this provider cannot change two sets of records together")
		}
	}
	return nil
}

func (z *Zone) write(ctx context.Context, gone, come []zone.RRSet) error {
	for _, one := range []struct {
		sets []zone.RRSet
		do   func(context.Context, string, []libdns.Record) ([]libdns.Record, error)
	}{{come, z.SetRecords}, {gone, z.DeleteRecords}} {
		var records []libdns.Record
		for _, set := range one.sets {
			rrs, err := set.RRs()
			if err != nil {
				return err
			}
			for _, rr := range rrs {
				record, err := z.record(rr)
				if err != nil {
					return err
				}
				records = append(records, record)
			}
		}
		if len(records) == 0 {
			continue
		}
		if _, err := one.do(ctx, z.Name, records); err != nil {
			return z.failed("changing", err)
		}
	}
	return nil
}

// record is one of libdns'.
func (z *Zone) record(rr dns.RR) (libdns.Record, error) {
	head := rr.Header()
	data := zone.Value(rr)
	if txt, ok := rr.(*dns.TXT); ok {
		data = text(txt.Txt)
	}
	return libdns.RR{Name: libdns.RelativeName(head.Name, z.Name), TTL: time.Duration(head.Ttl) * time.Second,
		Type: dns.TypeToString[head.Rrtype], Data: data}.Parse()
}

func (z *Zone) failed(what string, err error) error {
	if outage.Passes(err) {
		return fmt.Errorf("%s %s at its provider: %w: %w", what, z.Name, engine.ErrUnavailable, outage.Steady(err))
	}
	return engine.WithHint(fmt.Errorf("%s %s at its provider: %w: %w", what, z.Name, zone.ErrRefused, err),
		"check that the credentials may read and change the zone, and are not expired")
}
