package dns

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

const (
	// askers is how many questions are under way at one server.
	askers = 16
	// askTimeout bounds one question.
	askTimeout = 2 * time.Second
	// lookAgain is the time between two looks at what is not seen yet.
	lookAgain = 200 * time.Millisecond
)

// watched is one server of those that must show a change.
type watched struct {
	address string
	// cache is true of a resolver: its TTLs run down.
	cache   bool
	pending []zone.Place
	// has is what it answered last instead.
	has string
}

// Shown waits until every server and resolver shows what it should.
func (a *Actor) Shown(ctx context.Context, all []shift.SeeArgs) error {
	for _, args := range all {
		if err := a.see(ctx, args); err != nil {
			return err
		}
	}
	return nil
}

// see waits until every server shows what it should.
func (a *Actor) see(ctx context.Context, args shift.SeeArgs) error {
	z, err := a.zone(args.Zone)
	if err != nil {
		return err
	}
	wanted := zone.CurrentOf(args.Sets)
	for _, at := range args.Gone {
		wanted[at] = nil
	}
	if args.Yield {
		if err := yield(ctx, z, wanted); err != nil {
			return err
		}
	}
	if len(z.Authoritative) == 0 {
		return engine.WithHint(fmt.Errorf("no authoritative server of %s is known", z.Name),
			"name them in the zones file")
	}
	var servers []*watched
	places := slices.Collect(func(yield func(zone.Place) bool) {
		for at := range wanted {
			if !yield(at) {
				return
			}
		}
	})
	for _, address := range z.Authoritative {
		servers = append(servers, &watched{address: address, pending: places})
	}
	for _, address := range a.Resolvers {
		servers = append(servers, &watched{address: address, cache: true, pending: places})
	}
	for said := ""; ; {
		var all sync.WaitGroup
		for _, s := range servers {
			all.Go(func() { s.look(ctx, wanted) })
		}
		all.Wait()
		var behind []string
		for _, s := range servers {
			if len(s.pending) > 0 {
				behind = append(behind, fmt.Sprintf("%s (%d of %d: %s)", s.address, len(s.pending), len(places), s.has))
			}
		}
		if len(behind) == 0 {
			return nil
		}
		text := fmt.Sprintf("%d of %d servers do not have it: %s",
			len(behind), len(servers), strings.Join(behind, "; "))
		if text != said {
			a.note("%s", text)
			said = text
		}
		if err := a.Clock.Sleep(ctx, lookAgain); err != nil {
			return engine.WithHint(fmt.Errorf("%s: %w", text, err),
				"check the zone transfers to those servers, or leave out resolvers that you do not run")
		}
	}
}

// yield leaves out what the authority itself does not have so.
func yield(ctx context.Context, z *Zone, wanted zone.Current) error {
	var places []zone.Place
	for at := range wanted {
		places = append(places, at)
	}
	current, err := z.Read(ctx, places)
	if err != nil {
		return err
	}
	for at, sets := range wanted {
		if !slices.EqualFunc(zone.Sorted(slices.Clone(sets)), zone.Sorted(current[at]), zone.RRSet.Equal) {
			delete(wanted, at)
		}
	}
	return nil
}

// look asks for what is not seen yet.
func (w *watched) look(ctx context.Context, wanted zone.Current) {
	var lock sync.Mutex
	behind := map[zone.Place]string{}
	work := make(chan zone.Place)
	var workers sync.WaitGroup
	for range min(askers, len(w.pending)) {
		workers.Go(func() {
			for at := range work {
				if has := w.shows(ctx, at, wanted[at]); has != "" {
					lock.Lock()
					behind[at] = has
					lock.Unlock()
				}
			}
		})
	}
	for _, at := range w.pending {
		work <- at
	}
	close(work)
	workers.Wait()
	w.pending = slices.DeleteFunc(slices.Clone(w.pending), func(at zone.Place) bool { return behind[at] == "" })
	if len(w.pending) > 0 {
		w.has = behind[w.pending[0]] // of the same one at each look, so that what is said of it changes when it does
	}
}

// shows says what a server answers instead of one of the sets; "" when it answers right.
func (w *watched) shows(ctx context.Context, at zone.Place, sets []zone.RRSet) string {
	answer, err := ask(ctx, w.address, at, w.cache)
	what := at.Name + " " + at.Type
	switch {
	case err != nil:
		return what + ": " + outage.Steady(err).Error()
	case answer.Rcode != dns.RcodeSuccess && (len(sets) > 0 || answer.Rcode != dns.RcodeNameError):
		return what + " is " + dns.RcodeToString[answer.Rcode]
	case !w.cache && !answer.Authoritative:
		return what + ": the server is not authoritative"
	}
	found := slices.DeleteFunc(zone.FromRRs(answer.Answer), func(set zone.RRSet) bool {
		return set.Name != at.Name || set.Type != at.Type
	})
	if len(found) == 0 && len(sets) == 0 {
		return ""
	}
	if len(found) == 0 {
		return what + " is empty"
	}
	for _, set := range sets {
		ttl := found[0].TTL == set.TTL || w.cache && found[0].TTL <= set.TTL
		if set.Alias != nil || ttl && slices.Equal(found[0].Values, set.Values) {
			return ""
		}
	}
	return "`" + found[0].String() + "`"
}

// ask sends one question.
func ask(ctx context.Context, server string, at zone.Place, recursion bool) (*dns.Msg, error) {
	m := new(dns.Msg)
	m.SetQuestion(at.Name, dns.StringToType[at.Type])
	m.RecursionDesired = recursion
	m.SetEdns0(1232, false)
	answer, _, err := (&dns.Client{Timeout: askTimeout}).ExchangeContext(ctx, m, server)
	if err == nil && answer.Truncated {
		answer, _, err = (&dns.Client{Net: "tcp", Timeout: askTimeout}).ExchangeContext(ctx, m, server)
	}
	return answer, err
}
