package web

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/run/report"
)

//go:embed page
var files embed.FS

// policy lets the page load its own style and script, and ask its own server. Nothing else, inline or from elsewhere.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

const (
	// heartbeat is how often a viewer is sent something, so that it knows within seconds that the connection is cut.
	heartbeat = 5 * time.Second
	// writeWithin bounds how long a viewer may take for one delta.
	writeWithin = 20 * time.Second
	// maxAsked bounds the body of a request, in bytes.
	maxAsked = 4096
)

// Question is what a person confirms before an action.
type Question struct {
	// Text says what the action does; Word is to be typed, empty if nothing is.
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

// Server is the HTTP handler of the page. It answers only on its own address, and data only to who has the token.
type Server struct {
	feed    *Feed
	token   string
	address string  // host:port
	actions Actions // nil: the page only shows
	hint    func(error) string
	mux     *http.ServeMux
}

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
var ErrNotLoopback = errors.New("the page is served on a loopback address only: it shows the cluster to everyone who has its address, without encryption")

// NewServer makes the handler for an address. It has a new token. hint may be nil; it says what to do about an error.
func NewServer(feed *Feed, address string, actions Actions, hint func(error) string) *Server {
	s := &Server{feed: feed, token: rand.Text(), address: address, actions: actions, hint: hint, mux: http.NewServeMux()}
	s.mux.HandleFunc("GET /{$}", static("page/page.html", "text/html; charset=utf-8"))
	s.mux.HandleFunc("GET /page.js", static("page/page.js", "text/javascript; charset=utf-8"))
	s.mux.HandleFunc("GET /page.css", static("page/page.css", "text/css; charset=utf-8"))
	s.mux.HandleFunc("GET /report.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		w.Write([]byte(report.Style())) //nolint:errcheck // the viewer has gone
	})
	s.mux.HandleFunc("GET /plan", s.secret(s.plan))
	s.mux.HandleFunc("GET /feed", s.secret(s.stream))
	s.mux.HandleFunc("GET /step", s.secret(s.step))
	s.mux.HandleFunc("GET /node", s.secret(s.node))
	s.mux.HandleFunc("GET /question", s.secret(s.question))
	s.mux.HandleFunc("POST /do", s.secret(s.do))
	return s
}

// URL is the address for a browser. The token is in its fragment, which browsers do not send.
func (s *Server) URL() string { return "http://" + s.address + "/#" + s.token }

// ServeHTTP implements http.Handler. A page of another site may make a browser send requests here, by a name that it lets
// point to this machine: such a request has another Host, or another Origin.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range map[string]string{"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store"} {
		w.Header().Set(name, value)
	}
	site := r.Header.Get("Sec-Fetch-Site")
	origin := r.Header.Get("Origin")
	switch {
	case !s.ours(r.Host):
		http.Error(w, "this address is not the one that theseus web printed", http.StatusMisdirectedRequest)
	case origin != "" && !s.ours(strings.TrimPrefix(origin, "http://")), site == "cross-site" && r.URL.Path != "/":
		http.Error(w, "requests from other sites are refused", http.StatusForbidden)
	default:
		s.mux.ServeHTTP(w, r)
	}
}

// ours says whether a host:port is the page's own. The port decides: localhost is this machine as well. Browsers leave out port 80.
func (s *Server) ours(host string) bool {
	_, port, _ := net.SplitHostPort(s.address)
	if port == "80" && (host == "localhost" || host == strings.TrimSuffix(s.address, ":80")) {
		return true
	}
	return host == s.address || host == net.JoinHostPort("localhost", port)
}

// secret lets only those through who have the token.
func (s *Server) secret(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+s.token)) != 1 {
			http.Error(w, "the token is missing or wrong: use the whole address that theseus web printed", http.StatusUnauthorized)
			return
		}
		next(w, r)
	}
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

func (s *Server) plan(w http.ResponseWriter, _ *http.Request) {
	var p Plan
	s.feed.On(func(b *Board) { p = b.Plan() })
	if s.actions != nil {
		p.Actions = s.actions.Names()
	}
	reply(w, p)
}

// stream sends deltas as server-sent events until the viewer goes.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	var last *State
	for {
		waiting, cancel := context.WithTimeout(r.Context(), heartbeat)
		delta, state, err := s.feed.Next(waiting, last)
		cancel()
		text := []byte(": still here\n\n")
		switch {
		case r.Context().Err() != nil:
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

func (s *Server) step(w http.ResponseWriter, r *http.Request) {
	i, err := strconv.Atoi(r.FormValue("i"))
	var one report.Step
	known := false
	if err == nil {
		s.feed.On(func(b *Board) { one, known = b.Step(i) })
	}
	if !known {
		http.Error(w, "the plan has no such step", http.StatusNotFound)
		return
	}
	reply(w, one)
}

func (s *Server) node(w http.ResponseWriter, r *http.Request) {
	var one NodeDetail
	known := false
	s.feed.On(func(b *Board) { one, known = b.Node(r.FormValue("name")) })
	if !known {
		http.Error(w, "the plan has no such node", http.StatusNotFound)
		return
	}
	reply(w, one)
}

// allowed says whether the page may ask for an action.
func (s *Server) allowed(w http.ResponseWriter, action string) bool {
	if s.actions != nil && slices.Contains(s.actions.Names(), action) {
		return true
	}
	http.Error(w, "this page only shows: theseus web --allow-actions lets it act", http.StatusForbidden)
	return false
}

func (s *Server) question(w http.ResponseWriter, r *http.Request) {
	action := r.FormValue("action")
	if !s.allowed(w, action) {
		return
	}
	q, err := s.actions.Question(r.Context(), action)
	if err != nil {
		s.fail(w, err)
		return
	}
	reply(w, q)
}

// do asks for an action, once the word of its question was typed.
func (s *Server) do(w http.ResponseWriter, r *http.Request) {
	var asked struct{ Action, Word, Plan string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAsked)).Decode(&asked); err != nil {
		http.Error(w, "the request is not valid JSON", http.StatusBadRequest)
		return
	}
	if r.Header.Get("Origin") == "" {
		http.Error(w, "only the page itself may ask for actions", http.StatusForbidden)
		return
	}
	if !s.allowed(w, asked.Action) {
		return
	}
	q, err := s.actions.Question(r.Context(), asked.Action)
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
	said, err := s.actions.Do(r.Context(), asked.Action, asked.Plan)
	if err != nil {
		s.fail(w, err)
		return
	}
	reply(w, map[string]string{"said": said})
}

// fail tells an error as the command line does.
func (s *Server) fail(w http.ResponseWriter, err error) {
	text := "error: " + strings.Join(strings.Fields(err.Error()), " ")
	if s.hint != nil && s.hint(err) != "" {
		text += "\nhint: " + s.hint(err)
	}
	http.Error(w, text, http.StatusConflict)
}
