package dnstest

import (
	"encoding/xml"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// Route53 is a FAKE of Amazon Route 53, of which no real one can be had for a test: one hosted zone over HTTP, with
// what its documentation says of change batches (all or nothing, DELETE only with exact values, CREATE only what is
// not there, a weighted set not next to a simple one) and INSYNC, which comes after a number of questions. What it
// holds it also answers over DNS once it is in sync.
type Route53 struct {
	// URL is its HTTP endpoint, Address its name server.
	URL, Address string
	// Lag is how many questions a change stays PENDING.
	Lag int
	// Fail, when set, is the code and status that the next request fails with.
	Fail       string
	FailStatus int

	lock    sync.Mutex
	zone    string
	sets    []R53Set
	served  []R53Set
	pending map[string]int
	changes int
	// Shares are the weights that came, each time they were others: "original/mirror" in the order of their
	// identifiers.
	Shares []string
}

// R53Set is a resource record set as Route 53 writes it.
type R53Set struct {
	Name          string    `xml:"Name"`
	Type          string    `xml:"Type"`
	SetIdentifier string    `xml:"SetIdentifier,omitempty"`
	Weight        *int64    `xml:"Weight,omitempty"`
	Region        string    `xml:"Region,omitempty"`
	TTL           *int64    `xml:"TTL,omitempty"`
	Values        R53Values `xml:"ResourceRecords,omitempty"`
	Alias         *R53Alias `xml:"AliasTarget,omitempty"`
}

// R53Values are the records of a set.
type R53Values []string

type r53Records struct {
	Records []r53Record `xml:"ResourceRecord"`
}

type r53Record struct{ Value string }

// MarshalXML implements xml.Marshaler.
func (v R53Values) MarshalXML(e *xml.Encoder, start xml.StartElement) error {
	var records r53Records
	for _, value := range v {
		records.Records = append(records.Records, r53Record{value})
	}
	return e.EncodeElement(records, start)
}

// UnmarshalXML implements xml.Unmarshaler.
func (v *R53Values) UnmarshalXML(d *xml.Decoder, start xml.StartElement) error {
	var records r53Records
	err := d.DecodeElement(&records, &start)
	for _, record := range records.Records {
		*v = append(*v, record.Value)
	}
	return err
}

// R53Alias is an alias target.
type R53Alias struct {
	HostedZoneId         string
	DNSName              string
	EvaluateTargetHealth bool
}

// R53 makes a simple set.
func R53(name, kind string, ttl int64, values ...string) R53Set {
	return R53Set{Name: name, Type: kind, TTL: &ttl, Values: values}
}

// NewRoute53 runs the fake until the test ends.
func NewRoute53(t testing.TB, zone string, sets ...R53Set) *Route53 {
	t.Helper()
	f := &Route53{zone: zone, pending: map[string]int{}}
	f.sets = append([]R53Set{R53(zone, "SOA", 900, "ns hostmaster 1 7200 900 1209600 86400")}, sets...)
	f.served = slices.Clone(f.sets)
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.URL = server.URL
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	names := &dns.Server{PacketConn: packets, Handler: dns.HandlerFunc(f.answer)}
	go names.ActivateAndServe() //nolint:errcheck // it is shut down
	t.Cleanup(func() { names.Shutdown() })
	f.Address = packets.LocalAddr().String()
	return f
}

// Sets are what the zone has.
func (f *Route53) Sets() []R53Set {
	f.lock.Lock()
	defer f.lock.Unlock()
	return slices.Clone(f.sets)
}

// Meddle replaces a set as another client would.
func (f *Route53) Meddle(set R53Set) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.sets = append(slices.DeleteFunc(f.sets, set.place), set)
	f.served = slices.Clone(f.sets)
}

func (s R53Set) place(o R53Set) bool {
	return s.Name == o.Name && s.Type == o.Type && s.SetIdentifier == o.SetIdentifier
}

func (s R53Set) equal(o R53Set) bool {
	text := func(s R53Set) string {
		slices.Sort(s.Values)
		data, _ := xml.Marshal(s)
		return string(data)
	}
	return text(s) == text(o)
}

func (f *Route53) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.lock.Lock()
	defer f.lock.Unlock()
	w.Header().Set("Server", "a fake Route 53 of Theseus' tests")
	if f.Fail != "" {
		fail(w, f.FailStatus, f.Fail, "as asked")
		f.Fail = ""
		return
	}
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(path) == 3 && path[1] == "change":
		f.change(w, path[2])
	case len(path) != 4 || path[1] != "hostedzone" || path[2] != "Z1":
		fail(w, http.StatusNotFound, "NoSuchHostedZone", "no such zone: "+r.URL.Path)
	case r.Method == http.MethodPost:
		f.batch(w, r)
	default:
		f.list(w, r)
	}
}

func fail(w http.ResponseWriter, status int, code, message string) {
	w.WriteHeader(status)
	if code == "InvalidChangeBatch" {
		fmt.Fprintf(w,
			`<InvalidChangeBatch xmlns="https://route53.amazonaws.com/doc/2013-04-01/"><Messages><Message>%s</Message></Messages></InvalidChangeBatch>`,
			message)
		return
	}
	fmt.Fprintf(w,
		`<ErrorResponse xmlns="https://route53.amazonaws.com/doc/2013-04-01/"><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error><RequestId>1</RequestId></ErrorResponse>`,
		code, message)
}

// pageSize is small, so that pages are tested.
const pageSize = 7

func (f *Route53) list(w http.ResponseWriter, r *http.Request) {
	key := func(s R53Set) string { return s.Name + "\x00" + s.Type + "\x00" + s.SetIdentifier }
	sorted := slices.SortedFunc(slices.Values(f.sets), func(a, b R53Set) int { return strings.Compare(key(a), key(b)) })
	q := r.URL.Query()
	from := key(R53Set{Name: q.Get("name"), Type: q.Get("type"), SetIdentifier: q.Get("identifier")})
	if q.Get("name") == "" {
		from = ""
	} else if q.Get("type") == "" {
		from = q.Get("name")
	}
	sorted = slices.DeleteFunc(sorted, func(s R53Set) bool { return key(s) < from })
	answer := struct {
		XMLName              xml.Name `xml:"https://route53.amazonaws.com/doc/2013-04-01/ ListResourceRecordSetsResponse"`
		Sets                 []R53Set `xml:"ResourceRecordSets>ResourceRecordSet"`
		IsTruncated          bool
		NextRecordName       string `xml:",omitempty"`
		NextRecordType       string `xml:",omitempty"`
		NextRecordIdentifier string `xml:",omitempty"`
		MaxItems             int
	}{Sets: sorted, MaxItems: pageSize}
	if len(sorted) > pageSize {
		next := sorted[pageSize]
		answer.Sets, answer.IsTruncated = sorted[:pageSize], true
		answer.NextRecordName, answer.NextRecordType, answer.NextRecordIdentifier = next.Name,
			next.Type, next.SetIdentifier
	}
	for i := range answer.Sets {
		answer.Sets[i].Name = strings.ReplaceAll(answer.Sets[i].Name, "*", `\052`)
	}
	xml.NewEncoder(w).Encode(answer) //nolint:errcheck // the client notices
}

func (f *Route53) batch(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Changes []struct {
			Action string
			Set    R53Set `xml:"ResourceRecordSet"`
		} `xml:"ChangeBatch>Changes>Change"`
	}
	if err := xml.NewDecoder(r.Body).Decode(&request); err != nil {
		fail(w, http.StatusBadRequest, "InvalidInput", err.Error())
		return
	}
	sets := slices.Clone(f.sets)
	for _, c := range request.Changes {
		at := slices.IndexFunc(sets, c.Set.place)
		what := fmt.Sprintf("resource record set [name='%s', type='%s']", c.Set.Name, c.Set.Type)
		clash := slices.ContainsFunc(sets, func(o R53Set) bool {
			return o.Name == c.Set.Name &&
				(o.Type == c.Set.Type && (o.SetIdentifier == "") != (c.Set.SetIdentifier == "") ||
					(o.Type == "CNAME") != (c.Set.Type == "CNAME"))
		})
		switch {
		case c.Action == "DELETE" && at < 0:
			fail(w, http.StatusBadRequest, "InvalidChangeBatch", "Tried to delete "+what+" but it was not found")
			return
		case c.Action == "DELETE" && !sets[at].equal(c.Set):
			fail(w, http.StatusBadRequest, "InvalidChangeBatch",
				"Tried to delete "+what+" but the values provided do not match the current values")
			return
		case c.Action == "DELETE":
			sets = slices.Delete(sets, at, at+1)
		case c.Action == "CREATE" && at >= 0:
			fail(w, http.StatusBadRequest, "InvalidChangeBatch", "Tried to create "+what+" but it already exists")
			return
		case c.Action == "CREATE" && clash:
			fail(w, http.StatusBadRequest, "InvalidChangeBatch",
				"RRSet with DNS name "+c.Set.Name+" cannot be created beside what is there")
			return
		case c.Action == "CREATE":
			sets = append(sets, c.Set)
		default:
			fail(w, http.StatusBadRequest, "InvalidInput", "action "+c.Action)
			return
		}
	}
	f.sets = sets
	f.changes++
	f.share(sets)
	id := fmt.Sprintf("C%d", f.changes)
	f.pending[id] = f.Lag
	fmt.Fprintf(w,
		`<ChangeResourceRecordSetsResponse xmlns="https://route53.amazonaws.com/doc/2013-04-01/"><ChangeInfo><Id>/change/%s</Id><Status>PENDING</Status><SubmittedAt>2026-01-01T00:00:00Z</SubmittedAt></ChangeInfo></ChangeResourceRecordSetsResponse>`,
		id)
}

// share notes how the first name with weights is shared out.
func (f *Route53) share(sets []R53Set) {
	var weighed []R53Set
	for _, s := range sets {
		if s.Weight != nil && (len(weighed) == 0 || s.Name == weighed[0].Name) {
			weighed = append(weighed, s)
		}
	}
	slices.SortFunc(weighed, func(a, b R53Set) int { return strings.Compare(b.SetIdentifier, a.SetIdentifier) })
	var text []string
	for _, s := range weighed {
		text = append(text, fmt.Sprint(*s.Weight))
	}
	if now := strings.Join(text, "/"); now != "" && (len(f.Shares) == 0 || f.Shares[len(f.Shares)-1] != now) {
		f.Shares = append(f.Shares, now)
	}
}

func (f *Route53) change(w http.ResponseWriter, id string) {
	status := "PENDING"
	if f.pending[id]--; f.pending[id] < 0 {
		status = "INSYNC"
		f.served = slices.Clone(f.sets)
	}
	fmt.Fprintf(w,
		`<GetChangeResponse xmlns="https://route53.amazonaws.com/doc/2013-04-01/"><ChangeInfo><Id>/change/%s</Id><Status>%s</Status><SubmittedAt>2026-01-01T00:00:00Z</SubmittedAt></ChangeInfo></GetChangeResponse>`,
		id, status)
}

// answer speaks DNS: of weighted sets it gives the heaviest, of an alias a fixed address.
func (f *Route53) answer(w dns.ResponseWriter, m *dns.Msg) {
	f.lock.Lock()
	defer f.lock.Unlock()
	a := new(dns.Msg)
	a.SetReply(m)
	a.Authoritative = true
	q := m.Question[0]
	var best *R53Set
	for i, s := range f.served {
		if s.Name == q.Name && s.Type == dns.TypeToString[q.Qtype] &&
			(best == nil || s.Weight != nil && *s.Weight > *best.Weight) {
			best = &f.served[i]
		}
	}
	if best == nil {
		a.Rcode = dns.RcodeNameError
	} else {
		values, ttl := best.Values, int64(60)
		if best.Alias != nil {
			values = []string{"198.18.0.1"}
		} else {
			ttl = *best.TTL
		}
		for _, value := range values {
			if rr, err := dns.NewRR(fmt.Sprintf("%s %d IN %s %s", q.Name, ttl, best.Type, value)); err == nil {
				a.Answer = append(a.Answer, rr)
			}
		}
	}
	w.WriteMsg(a) //nolint:errcheck // the client asks again
}
