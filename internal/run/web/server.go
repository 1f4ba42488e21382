package web

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/run/report"
	"github.com/theseus-cni/theseus/internal/safeio/bounded"
)

//go:embed page
var files embed.FS

// policy lets the page load its own style and script, and ask its own server. Nothing else, inline or from elsewhere.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'"

const (
	// heartbeat is how often a viewer is sent something, so that it knows within seconds that the connection is cut.
	heartbeat = 5 * time.Second
	// writeWithin bounds how long a viewer may take for one delta.
	writeWithin = 20 * time.Second
	// checkEvery is how often it is asked whether a viewer may still look, and checkWithin how long the answer may
	// take. Where the cluster can be read, but no check succeeds, the viewer looks on for unprovenFor.
	checkEvery  = 30 * time.Second
	checkWithin = 10 * time.Second
	unprovenFor = 2 * time.Minute
	// maxAsked bounds the body of a request, in bytes, and bodyWithin how long it may take to come. An answer must be
	// read within answerWithin.
	maxAsked     = 4096
	bodyWithin   = 10 * time.Second
	answerWithin = 2 * time.Minute
)

// Question is what a person confirms before an action.
type Question struct {
	// Text says what the action does; Word is the word to type; empty if there is none.
	Text string `json:"text"`
	Word string `json:"word,omitempty"`
	// Plan is the hash of the plan that Text describes.
	Plan string `json:"plan"`
}

// Actions carry out what a person asks for on the page.
type Actions interface {
	// Names are the actions, such as "pause".
	Names() []string
	// Question is what to confirm before an action.
	Question(ctx context.Context, action string) (Question, error)
	// Do asks for the action, and returns what was done in a sentence. The plan is the one of the question.
	Do(ctx context.Context, action, plan string) (string, error)
}

// Server is the HTTP handler of the page. It answers data only to whom its gate lets through.
type Server struct {
	// CheckEvery is how often it is asked whether a viewer may still look; 0 means every 30 s.
	CheckEvery time.Duration
	// Live reads the cluster where the View has none of its own; nil means that what needs it is not known.
	Live Live

	gate Gate
	hint func(error) string
	mux  *http.ServeMux
	url  string // of the page; empty if the browser's address is not known
	// counting has a place for the one request that reads all pods of the cluster.
	counting chan struct{}

	unproven, body time.Duration // unprovenFor and bodyWithin, but for tests
}

// Gate says who sends a request, and what that person sees. Its error is a *Refused, or one of reading the cluster.
type Gate interface {
	// Ours refuses requests that pages of other sites let a browser send.
	Ours(*http.Request) *Refused
	// View is what the person may see of a migration; an empty name means the latest one. The caller calls its Close.
	View(r *http.Request, migration string) (*View, error)
}

// View is what a person sees.
type View struct {
	// Feed is nil where there is room for no more of them; the page then has only the actions.
	Feed *Feed
	// Name is that of the migration; empty if the page has only one.
	Name string
	// Actions are what this person may do; nil means that the page only shows.
	Actions Actions
	// Lacks says what is missing for the other actions.
	Lacks string
	// User is the name of the person for the API server; empty if the page need not know it.
	User string
	// Others are the names of all migrations that can be chosen, newest first; empty if the page has only one.
	Others []string
	// Live reads the cluster with the rights of the person.
	Live Live
	// Check says whether the person may still look. It may be nil.
	Check func(context.Context) error
	// Close says that the person does not look any more. It may be nil.
	Close func()
}

// Refused says why a request gets no answer.
type Refused struct {
	Code int // of HTTP
	Text string
	// SignIn means that another token may help.
	SignIn bool
}

func (r *Refused) Error() string { return r.Text }

// Listen opens a port for the page. It refuses addresses that other machines could reach.
func Listen(address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%q is no address: %w", address, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, ErrNotLoopback
	}
	return net.Listen("tcp", address)
}

// ErrNotLoopback is the error for an address that is not one of this machine alone.
var ErrNotLoopback = errors.New("the page is served on a loopback address only: it shows the cluster to everyone who " +
	"has its address, without encryption")

// NewServer makes the handler for an address of this machine. It has a new token. hint may be nil; it says what to do
// about an error.
func NewServer(feed *Feed, address string, actions Actions, hint func(error) string) *Server {
	l := &loopback{address: address, token: rand.Text(), view: View{Feed: feed, Actions: actions,
		Lacks: "this page is read-only: start it with theseus web --allow-actions"}}
	s := Serve(l, hint)
	s.url = "http://" + address + "/#" + l.token // browsers do not send a fragment
	return s
}

// Serve makes the handler for whom a gate lets through. hint may be nil; it says what to do about an error.
func Serve(gate Gate, hint func(error) string) *Server {
	s := &Server{gate: gate, hint: hint, mux: http.NewServeMux(), counting: make(chan struct{}, 1),
		unproven: unprovenFor, body: bodyWithin}
	s.mux.HandleFunc("GET /{$}", static("page/page.html", "text/html; charset=utf-8"))
	s.mux.HandleFunc("GET /page.js", static("page/page.js", "text/javascript; charset=utf-8"))
	s.mux.HandleFunc("GET /page.css", static("page/page.css", "text/css; charset=utf-8"))
	s.mux.HandleFunc("GET /report.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		w.Write([]byte(report.Style())) //nolint:errcheck // the viewer has gone
	})
	for path, answer := range map[string]func(*View, http.ResponseWriter, *http.Request){"GET /plan": s.plan,
		"GET /feed": s.stream, "GET /step": s.step,
		"GET /node": s.node, "GET /workloads": s.workloads, "GET /question": s.question, "POST /do": s.do} {
		s.mux.HandleFunc(path, s.through(answer))
	}
	return s
}

// URL is the address for a browser, with the token of the page; empty if the page was made by Serve.
func (s *Server) URL() string { return s.url }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range map[string]string{"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff",
		"Referrer-Policy":            "no-referrer",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		"Cache-Control": "no-store"} {
		w.Header().Set(name, value)
	}
	if err := s.receive(w, r); err != nil {
		w.Header().Set("Connection", "close")
		http.Error(w, "the request is too long, or too slow", http.StatusBadRequest)
		return
	}
	if refused := s.gate.Ours(r); refused != nil {
		refuse(w, refused)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// receive reads the body before anything else is done for a request, and bounds how long the answer may take to be
// read: anyone may send requests, and never finish them.
func (s *Server) receive(w http.ResponseWriter, r *http.Request) error {
	control := http.NewResponseController(w)
	control.SetWriteDeadline(time.Now().Add(answerWithin)) //nolint:errcheck // tests have writers without deadlines
	if r.ContentLength == 0 {
		return nil
	}
	control.SetReadDeadline(time.Now().Add(s.body)) //nolint:errcheck
	body, err := bounded.ReadAll(r.Body, maxAsked)
	if err != nil {
		return err
	}
	// No deadline from here on: net/http goes on to read, to notice when the client disconnects.
	control.SetReadDeadline(time.Time{}) //nolint:errcheck
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// through answers only those whom the gate lets through.
func (s *Server) through(answer func(*View, http.ResponseWriter, *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		view, err := s.gate.View(r, r.URL.Query().Get("migration"))
		if refused, ok := errors.AsType[*Refused](err); ok {
			refuse(w, refused)
			return
		}
		if err != nil {
			s.fail(w, err)
			return
		}
		if view.Close != nil {
			defer view.Close()
		}
		answer(view, w, r)
	}
}

func refuse(w http.ResponseWriter, refused *Refused) {
	if refused.SignIn {
		w.Header().Set("WWW-Authenticate", `Bearer realm="Kubernetes"`)
	}
	http.Error(w, refused.Text, refused.Code)
}

// loopback lets those through who have its token, which only the printed address has. A page of another site may make a
// browser send requests here, by a name that it lets point to this machine: such a request has another Host, or another
// Origin.
type loopback struct {
	address string // host:port
	token   string
	view    View
}

// Ours implements Gate.
func (l *loopback) Ours(r *http.Request) *Refused {
	origin := r.Header.Get("Origin")
	switch {
	case !l.ours(r.Host):
		return &Refused{Code: http.StatusMisdirectedRequest,
			Text: "this address is not the one that theseus web printed"}
	case origin != "" && !l.ours(strings.TrimPrefix(origin, "http://")), crossSite(r):
		return &Refused{Code: http.StatusForbidden, Text: "requests from other sites are refused"}
	}
	return nil
}

// crossSite says whether a page of another site asks for more than this page itself, to which it may link.
func crossSite(r *http.Request) bool {
	return r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.URL.Path != "/"
}

// ours says whether a host:port is the page's own. The port decides: localhost is this machine as well. Browsers leave
// out port 80.
func (l *loopback) ours(host string) bool {
	_, port, _ := net.SplitHostPort(l.address)
	if port == "80" && (host == "localhost" || host == strings.TrimSuffix(l.address, ":80")) {
		return true
	}
	return host == l.address || host == net.JoinHostPort("localhost", port)
}

// View implements Gate.
func (l *loopback) View(r *http.Request, _ string) (*View, error) {
	if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+l.token)) != 1 {
		return nil, &Refused{Code: http.StatusUnauthorized,
			Text: "the token is missing or wrong: use the whole address that theseus web printed"}
	}
	return &l.view, nil
}

func static(name, kind string) http.HandlerFunc {
	data, err := files.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Write(data) //nolint:errcheck // the viewer has gone
	}
}

func reply(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(value) //nolint:errcheck // the viewer has gone
}

func (s *Server) plan(v *View, w http.ResponseWriter, _ *http.Request) {
	p := Plan{Name: v.Name, Steps: []PlanStep{}, Waits: true}
	if v.Feed != nil {
		v.Feed.On(func(b *Board) { p = b.Plan() })
	}
	p.User, p.Others = v.User, v.Others
	if v.Actions != nil {
		p.Actions = v.Actions.Names()
	}
	reply(w, p)
}

// stream sends deltas as server-sent events until the viewer goes.
func (s *Server) stream(v *View, w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	ctx, end := context.WithCancel(r.Context())
	defer end()
	if v.Check != nil {
		go s.watch(ctx, v, end) // ends with ctx
	}
	var last *State
	for {
		waiting, cancel := context.WithTimeout(ctx, heartbeat)
		delta, state, err := v.Feed.Next(waiting, last)
		cancel()
		text := []byte(": still here\n\n")
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			data, err := json.Marshal(delta)
			if err != nil {
				return
			}
			text, last = slices.Concat([]byte("data: "), data, []byte("\n\n")), state
		}
		if control.SetWriteDeadline(time.Now().Add(writeWithin)) != nil {
			return
		}
		if _, err := w.Write(text); err != nil || control.Flush() != nil {
			return
		}
	}
}

// watch asks again and again whether a viewer may still look, and ends the stream if not: the page asks again, and is
// told why. While the cluster cannot be read, no check succeeds either: the page says so, and shows nothing new.
func (s *Server) watch(ctx context.Context, v *View, end func()) {
	defer end()
	proven := time.Now()
	for outage.Sleep(ctx, cmp.Or(s.CheckEvery, checkEvery)) == nil {
		asked := time.Now()
		within, cancel := context.WithTimeout(ctx, checkWithin)
		err := v.Check(within)
		cancel()
		if err == nil {
			proven = asked
		} else if _, refused := errors.AsType[*Refused](err); refused || v.Feed.Read().Sub(proven) >= s.unproven {
			return
		}
	}
}

// errNoLive says that the page was made without a client for the cluster.
var errNoLive = errors.New("this page does not read the cluster")

func (s *Server) live(v *View) Live {
	if v.Live != nil {
		return v.Live
	}
	return s.Live
}

func (s *Server) step(v *View, w http.ResponseWriter, r *http.Request) {
	i, err := strconv.Atoi(r.FormValue("i"))
	var one report.Step
	known := false
	if err == nil {
		v.Feed.On(func(b *Board) { one, known = b.Step(i) })
	}
	if !known {
		http.Error(w, "the plan has no such step", http.StatusNotFound)
		return
	}
	reply(w, one)
}

// allowed says whether the page may ask for an action.
func (v *View) allowed(w http.ResponseWriter, action string) bool {
	if v.Actions != nil && slices.Contains(v.Actions.Names(), action) {
		return true
	}
	http.Error(w, v.Lacks, http.StatusForbidden)
	return false
}

func (s *Server) question(v *View, w http.ResponseWriter, r *http.Request) {
	action := r.FormValue("action")
	if !v.allowed(w, action) {
		return
	}
	q, err := v.Actions.Question(r.Context(), action)
	if err != nil {
		s.fail(w, err)
		return
	}
	reply(w, q)
}

// do asks for an action, once the word of its question was typed.
func (s *Server) do(v *View, w http.ResponseWriter, r *http.Request) {
	var asked struct{ Action, Word, Plan string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAsked)).Decode(&asked); err != nil {
		http.Error(w, "the request is not valid JSON", http.StatusBadRequest)
		return
	}
	if r.Header.Get("Origin") == "" {
		http.Error(w, "only the page itself may request actions", http.StatusForbidden)
		return
	}
	if !v.allowed(w, asked.Action) {
		return
	}
	q, err := v.Actions.Question(r.Context(), asked.Action)
	switch {
	case err != nil:
		s.fail(w, err)
		return
	case q.Plan != asked.Plan:
		http.Error(w, "the plan in the cluster is not the one that was shown: nothing was changed", http.StatusConflict)
		return
	case strings.TrimSpace(asked.Word) != q.Word:
		http.Error(w, fmt.Sprintf("not confirmed: type %q. Nothing was changed", q.Word), http.StatusBadRequest)
		return
	}
	said, err := v.Actions.Do(r.Context(), asked.Action, asked.Plan)
	if err != nil {
		s.fail(w, err)
		return
	}
	reply(w, map[string]string{"said": said})
}

// fail tells an error as the command line does.
func (s *Server) fail(w http.ResponseWriter, err error) {
	code := http.StatusConflict
	if outage.Passes(err) {
		code = http.StatusServiceUnavailable
	}
	text := "error: " + strings.Join(strings.Fields(err.Error()), " ")
	if s.hint != nil && s.hint(err) != "" {
		text += "\nhint: " + s.hint(err)
	}
	http.Error(w, text, code)
}
