// Package rfc2136 reads zones and changes them by dynamic updates (RFC 2136). Prerequisites make an update a
// compare-and-swap: the server changes all records, or none if one is not as expected. Updates and transfers are
// signed (TSIG, RFC 8945).
package rfc2136

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// timeout bounds one exchange with the server.
const timeout = 10 * time.Second

// maxMessage is what an update may have, in bytes: DNS over TCP takes 64 KiB, and the signature comes on top.
const maxMessage = 64<<10 - 1024

// Key is a TSIG key.
type Key struct {
	Name      string // canonical
	Algorithm string // such as "hmac-sha256."
	Secret    string // base64
}

// Check reports errors in a key's format.
func (k Key) Check() error {
	if _, err := base64.StdEncoding.DecodeString(k.Secret); err != nil || k.Secret == "" {
		return errors.New("the secret is not base64")
	}
	return nil
}

// Server is the primary of one zone, which accepts its updates.
type Server struct {
	Zone    string // canonical
	Address string // host:port
	// Key signs updates and transfers; the zero Key does not, which few servers accept.
	Key Key
	// Now is the clock of signatures; nil for the real one.
	Now func() time.Time
}

func (s *Server) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

func (s *Server) secrets() map[string]string {
	if s.Key.Name == "" {
		return nil
	}
	return map[string]string{s.Key.Name: s.Key.Secret}
}

func (s *Server) sign(m *dns.Msg) {
	if s.Key.Name != "" {
		m.SetTsig(s.Key.Name, s.Key.Algorithm, 300, s.now().Unix())
	}
}

// Load reads the whole zone by transfer (AXFR).
func (s *Server) Load(ctx context.Context) (*zone.Zone, error) {
	m := new(dns.Msg)
	m.SetAxfr(s.Zone)
	s.sign(m)
	dialer := net.Dialer{Timeout: timeout}
	conn, err := dialer.DialContext(ctx, "tcp", s.Address)
	if err != nil {
		return nil, s.unreachable(err)
	}
	defer conn.Close()
	transfer := &dns.Transfer{Conn: &dns.Conn{Conn: conn}, TsigSecret: s.secrets(),
		ReadTimeout: timeout, WriteTimeout: timeout}
	envelopes, err := transfer.In(m, s.Address)
	if err != nil {
		return nil, s.unreachable(err)
	}
	var records []dns.RR
	for e := range envelopes {
		if e.Error != nil {
			err = e.Error // the channel is read to its end
		}
		records = append(records, e.RR...)
	}
	var out *net.OpError
	switch {
	case errors.As(err, &out):
		return nil, s.unreachable(err)
	case err != nil:
		return nil, engine.WithHint(fmt.Errorf("transfer of %s from %s: %w: %w", s.Zone,
			s.Address, zone.ErrRefused, err),
			fmt.Sprintf("allow the key %s to transfer the zone, and check its secret and this machine's clock",
				orNone(s.Key.Name)))
	case len(records) == 0:
		return nil, fmt.Errorf("transfer of %s from %s: the zone is empty", s.Zone, s.Address)
	}
	z := &zone.Zone{Name: s.Zone, Sets: zone.FromRRs(records), Can: zone.Can{Swap: true}}
	if soa, ok := records[0].(*dns.SOA); ok {
		z.Negative = min(soa.Hdr.Ttl, soa.Minttl)
	}
	return z, nil
}

// lookups is how many questions are under way at a time.
const lookups = 8

// Read queries the server for the record sets at places.
func (s *Server) Read(ctx context.Context, places []zone.Place) (zone.Current, error) {
	current := zone.Current{}
	var lock sync.Mutex
	var failed error
	work := make(chan zone.Place)
	var workers sync.WaitGroup
	for range min(lookups, len(places)) {
		workers.Go(func() {
			for at := range work {
				sets, err := s.lookup(ctx, at)
				lock.Lock()
				if err != nil {
					failed = err
				}
				if len(sets) > 0 {
					current[at] = sets
				}
				lock.Unlock()
			}
		})
	}
	for _, at := range places {
		work <- at
	}
	close(work)
	workers.Wait()
	return current, failed
}

// lookup asks for one set, by UDP, and by TCP where the answer is too long for that.
func (s *Server) lookup(ctx context.Context, at zone.Place) ([]zone.RRSet, error) {
	m := new(dns.Msg)
	m.SetQuestion(at.Name, dns.StringToType[at.Type])
	m.RecursionDesired = false
	m.SetEdns0(1232, false)
	answer, err := exchange(ctx, "udp", s.Address, m)
	if err != nil {
		return nil, s.unreachable(err)
	}
	if answer.Rcode != dns.RcodeSuccess && answer.Rcode != dns.RcodeNameError || !answer.Authoritative {
		return nil, engine.WithHint(fmt.Errorf("%s %s at %s: %s, authoritative: %v",
			at.Name, at.Type, s.Address, dns.RcodeToString[answer.Rcode], answer.Authoritative),
			"check that the server serves the zone "+s.Zone)
	}
	return slices.DeleteFunc(zone.FromRRs(answer.Answer), func(set zone.RRSet) bool {
		return set.Name != at.Name || set.Type != at.Type // a CNAME answers for every type
	}), nil
}

// exchange asks one question, thrice where no answer comes, and by TCP where it is cut short.
func exchange(ctx context.Context, network, address string, m *dns.Msg) (*dns.Msg, error) {
	client := &dns.Client{Net: network, Timeout: timeout / 4}
	var answer *dns.Msg
	var err error
	for range 3 {
		answer, _, err = client.ExchangeContext(ctx, m, address)
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	if err == nil && answer.Truncated && network == "udp" {
		return exchange(ctx, "tcp", address, m)
	}
	return answer, err
}

// Commit changes all units, or, if one is not as expected, none, with zone.ErrConflict.
func (s *Server) Commit(ctx context.Context, t zone.Transaction) error {
	m, err := message(t)
	if err != nil {
		return err
	}
	if n := m.Len(); n > maxMessage {
		return engine.WithHint(fmt.Errorf("an update of %d names has %d bytes: %d fit", len(t.Units), n, maxMessage),
			"plan with a smaller --batch")
	}
	s.sign(m)
	client := &dns.Client{Net: "tcp", Timeout: timeout, TsigSecret: s.secrets()}
	answer, _, err := client.ExchangeContext(ctx, m, s.Address)
	if answer != nil && (answer.Rcode != dns.RcodeSuccess || err == nil) {
		return s.verdict(answer)
	}
	return s.unreachable(err)
}

// message is the update: what must be, what goes, what comes.
func message(t zone.Transaction) (*dns.Msg, error) {
	m := new(dns.Msg)
	m.SetUpdate(t.Zone)
	for _, u := range t.Units {
		for _, set := range u.Before {
			if set.Alias != nil || set.SetID != "" {
				return nil, fmt.Errorf("%s: name servers do not support aliases and weights", set.Name)
			}
			records, err := set.RRs() // Used changes the records it is given
			if err != nil {
				return nil, err
			}
			m.Used(records)
		}
		for _, at := range u.Absent() {
			m.RRsetNotUsed([]dns.RR{&dns.ANY{Hdr: dns.RR_Header{Name: at.Name, Rrtype: dns.StringToType[at.Type]}}})
		}
	}
	for _, u := range t.Units {
		gone, come := u.Changes()
		for _, set := range gone {
			m.RemoveRRset([]dns.RR{&dns.ANY{Hdr: dns.RR_Header{Name: set.Name, Rrtype: dns.StringToType[set.Type]}}})
		}
		for _, set := range come {
			records, err := set.RRs()
			if err != nil {
				return nil, err
			}
			m.Insert(records)
		}
	}
	return m, nil
}

// verdict puts the server's answer into words.
func (s *Server) verdict(answer *dns.Msg) error {
	what := fmt.Sprintf("update of %s at %s", s.Zone, s.Address)
	signature := answer.IsTsig()
	switch answer.Rcode {
	case dns.RcodeSuccess:
		if signature == nil && s.Key.Name != "" {
			return fmt.Errorf("%s: the answer is not signed, so anyone may have sent it", what)
		}
		return nil
	case dns.RcodeNXRrset, dns.RcodeYXRrset, dns.RcodeNameError, dns.RcodeYXDomain:
		return fmt.Errorf("%s: %w (%s)", what, zone.ErrConflict, dns.RcodeToString[answer.Rcode])
	case dns.RcodeServerFailure:
		return fmt.Errorf("%s: %w: the server failed (SERVFAIL)", what, engine.ErrUnavailable)
	case dns.RcodeRefused:
		return engine.WithHint(fmt.Errorf("%s: %w: the server refuses the update (REFUSED)", what, zone.ErrRefused),
			fmt.Sprintf("let the key %s update the zone (update-policy, acl, TSIG-ALLOW-DNSUPDATE) and send it to "+
				"the primary; PowerDNS also refuses when the secret or the clock is wrong", orNone(s.Key.Name)))
	case dns.RcodeNotAuth:
		return s.notAuth(what, signature)
	case dns.RcodeNotImplemented:
		return engine.WithHint(fmt.Errorf("%s: %w: the server does not support updates "+
			"(NOTIMP)", what, zone.ErrRefused),
			"switch them on (PowerDNS: dnsupdate=yes)")
	case dns.RcodeNotZone:
		return fmt.Errorf("%s: %w: a record is outside of the zone (NOTZONE)", what, zone.ErrRefused)
	}
	return fmt.Errorf("%s: %w: %s", what, zone.ErrRefused, dns.RcodeToString[answer.Rcode])
}

func (s *Server) notAuth(what string, signature *dns.TSIG) error {
	code := uint16(0)
	if signature != nil {
		code = signature.Error
	}
	key := orNone(s.Key.Name)
	switch code {
	case dns.RcodeBadTime:
		return engine.WithHint(fmt.Errorf("%s: %w: the signature's time is off (BADTIME)", what, zone.ErrRefused),
			"set the clock of this machine, or the server's")
	case dns.RcodeBadSig:
		return engine.WithHint(fmt.Errorf("%s: %w: the signature of key %s is wrong (BADSIG)",
			what, zone.ErrRefused, key), "check the key's secret and algorithm")
	case dns.RcodeBadKey:
		return engine.WithHint(fmt.Errorf("%s: %w: the server does not know key %s (BADKEY)",
			what, zone.ErrRefused, key), "check the key's name and algorithm; it may have expired")
	}
	return engine.WithHint(fmt.Errorf("%s: %w: the server refuses updates signed with the key %s (NOTAUTH)",
		what, zone.ErrRefused, key),
		"check the key's name, secret and algorithm, the clock, and that the server is the zone's primary")
}

func (s *Server) unreachable(err error) error {
	return engine.WithHint(fmt.Errorf("server %s of %s: %w: %w", s.Address, s.Zone, engine.ErrUnavailable,
		outage.Steady(err)), "check the server's address, and that it runs")
}

func orNone(key string) string {
	if key == "" {
		return "none"
	}
	return strings.TrimSuffix(key, ".")
}
