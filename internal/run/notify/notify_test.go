package notify

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/run/engine"
)

const secret = "0123456789abcdef0123456789abcdef"

// receiver is an HTTP endpoint that answers as told, and then 202.
type receiver struct {
	*httptest.Server
	lock    sync.Mutex
	answers []int // by request; -1 cuts the connection
	got     []string
	bad     []string
	tried   int
}

func receive(t *testing.T, answers ...int) *receiver {
	t.Helper()
	r := &receiver{answers: answers}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, _ := io.ReadAll(request.Body)
	r.lock.Lock()
	defer r.lock.Unlock()
	r.tried++
	if len(r.answers) > 0 {
		answer := r.answers[0]
		r.answers = r.answers[1:]
		switch {
		case answer < 0:
			panic(http.ErrAbortHandler)
		case answer/100 == 3:
			w.Header().Set("Location", "/elsewhere")
		}
		if w.WriteHeader(answer); answer/100 != 2 {
			return
		}
	} else {
		w.WriteHeader(http.StatusAccepted)
	}
	header := request.Header
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%s.%s.%s", header.Get("Webhook-Id"), header.Get("Webhook-Timestamp"), body)
	var e struct {
		SpecVersion, ID, Source, Type, Time string
		Data                                struct{ N int }
	}
	err := json.Unmarshal(body, &e)
	if header.Get("Webhook-Signature") != "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)) ||
		header.Get("Webhook-Id") != e.ID || request.Method != http.MethodPost ||
		!strings.HasPrefix(header.Get("Content-Type"), "application/cloudevents+json") || err != nil ||
		e.SpecVersion != "1.0" || e.Source != "/s" || e.Type == "" || e.Time == "" {
		r.bad = append(r.bad, fmt.Sprintf("%v %s", header, body))
	}
	r.got = append(r.got, e.ID)
}

func (r *receiver) seen() (got, bad []string, tried int) {
	r.lock.Lock()
	defer r.lock.Unlock()
	return slices.Clone(r.got), slices.Clone(r.bad), r.tried
}

// said collects warnings.
type said struct {
	lock  sync.Mutex
	lines []string
}

func (s *said) say(line string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.lines = append(s.lines, line)
}

func (s *said) String() string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return strings.Join(s.lines, "\n")
}

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func event(n int) Event {
	return Event{ID: fmt.Sprint("e", n), Source: "/s", Type: "dev.theseus.run.test", Time: time.Unix(int64(n), 0).UTC(),
		Data: map[string]int{"n": n}}
}

func target(t *testing.T, address string) *Target {
	t.Helper()
	to, err := New(address, file(t, secret+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// TestInOrder: each event arrives once, in order, signed, whatever the endpoint answers first.
func TestInOrder(t *testing.T) {
	r := receive(t, 500, -1, 429)
	var all said
	var sent []string
	s := target(t, r.URL).Start(t.Context(),
		func(_ context.Context, e Event) error { sent = append(sent, e.ID); return nil }, all.say)
	for n := range 4 {
		s.Add(event(n))
	}
	s.Close(t.Context(), 30*time.Second)
	got, bad, _ := r.seen()
	want := []string{"e0", "e1", "e2", "e3"}
	if !slices.Equal(got, want) || !slices.Equal(sent, want) || len(bad) > 0 {
		t.Errorf("got %q, sent %q, wrong: %q", got, sent, bad)
	}
	if text := all.String(); strings.Count(text, "\n") != 0 ||
		!strings.Contains(text, "is retried: "+r.URL+": it answered 500") {
		t.Errorf("said: %s", text)
	}
}

// TestFinal: a redirect is not followed, and what another attempt does not change is given up at once. The next event
// is sent.
func TestFinal(t *testing.T) {
	r := receive(t, 307, 403)
	var all said
	s := target(t, r.URL+"/token?key=hidden").Start(t.Context(),
		func(context.Context, Event) error { return nil }, all.say)
	for n := range 3 {
		s.Add(event(n))
	}
	s.Close(t.Context(), 30*time.Second)
	got, _, tried := r.seen()
	if !slices.Equal(got, []string{"e2"}) || tried != 3 {
		t.Errorf("got %q in %d attempts", got, tried)
	}
	if text := all.String(); !strings.Contains(text, "answered 307, and redirects are not followed") ||
		!strings.Contains(text, "answered 403") ||
		strings.Contains(text, "hidden") || strings.Contains(text, "token") {
		t.Errorf("said: %s", text)
	}
}

// TestHangs: an endpoint that does not answer delays nobody longer than Close may take, and no warning has the secrets
// of the URL.
func TestHangs(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(release)
	for _, address := range []string{strings.Replace(server.URL, "http://", "http://user:hidden@", 1) + "/token",
		"http://user:hidden@127.0.0.1:1/token"} {
		var all said
		began := time.Now()
		s := target(t, address).Start(t.Context(),
			func(context.Context, Event) error { t.Error("sent"); return nil }, all.say)
		for n := range 3 {
			s.Add(event(n))
		}
		s.Close(t.Context(), 300*time.Millisecond)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s", took)
		}
		if text := all.String(); !strings.Contains(text, "3 notifications were not delivered to http://127.0.0.1:") ||
			strings.Contains(text, "hidden") || strings.Contains(text, "token") {
			t.Errorf("said: %s", text)
		}
	}
}

// TestExposed: who sends in clear text is told so, unless nothing leaves the machine.
func TestExposed(t *testing.T) {
	for address, says := range map[string]string{
		"https://user:hidden@events.example.com": "", "http://localhost:8080/x": "",
		"http://user:hidden@127.0.0.1/": "", "http://[::1]/": "", "http://events.example.com/token": "read them",
		"http://10.0.0.1": "read them", "http://user:hidden@events.example.com/token": "password",
	} {
		if got := target(t, address).Exposed(); (got == "") != (says == "") || !strings.Contains(got, says) ||
			strings.Contains(got, "hidden") || strings.Contains(got, "token") {
			t.Errorf("%s: %q", address, got)
		}
	}
}

// TestEnd: once the sending is ended, nothing that waits is sent, and nobody is told that it was not.
func TestEnd(t *testing.T) {
	r := receive(t, 500)
	var all said
	s := target(t, r.URL).Start(t.Context(), func(context.Context, Event) error { t.Error("sent"); return nil },
		all.say)
	s.Add(event(0))
	for until := time.Now().Add(time.Minute); all.String() == "" && time.Now().Before(until); {
		time.Sleep(10 * time.Millisecond)
	}
	s.End()
	s.Add(event(1))
	s.Close(t.Context(), 30*time.Second)
	if got, _, tried := r.seen(); len(got) > 0 || tried != 1 || strings.Contains(all.String(), "not delivered") {
		t.Errorf("got %q in %d attempts; said: %s", got, tried, all.String())
	}
}

// TestRecorded: what was sent is recorded again after that has failed, while nothing else is sent.
func TestRecorded(t *testing.T) {
	r := receive(t)
	var all said
	tried := make(chan string, 10)
	s := target(t, r.URL).Start(t.Context(), func(_ context.Context, e Event) error {
		tried <- e.ID
		if len(tried) == 1 {
			return fmt.Errorf("no")
		}
		return nil
	}, all.say)
	s.Add(event(0))
	for until := time.Now().Add(time.Minute); all.String() == "" && time.Now().Before(until); {
		time.Sleep(10 * time.Millisecond)
	}
	s.Close(t.Context(), 30*time.Second)
	if got, _, _ := r.seen(); len(got) != 1 || len(tried) != 2 ||
		!strings.Contains(all.String(), "may send the notification dev.theseus.run.test again: no") {
		t.Errorf("got %q, tried %d times; said: %s", got, len(tried), all.String())
	}
}

// TestUntrusted: a certificate of an unknown authority is refused.
func TestUntrusted(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a request was sent")
	}))
	defer server.Close()
	server.Config.ErrorLog = nil
	err := target(t, server.URL).deliver(t.Context(), event(1))
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Error(err)
	}
}

// TestNew: bad addresses and secrets are refused, with a hint and without what they contain.
func TestNew(t *testing.T) {
	for _, test := range []struct{ address, secretFile, says string }{
		{"events.example.com", "", "not valid"}, {"ftp://user:hidden@a/b", "", "not valid"},
		{"https://", "", "not valid"}, {"https://user:hidden@a b/", "", "not valid"},
		{"@" + filepath.Join(t.TempDir(), "none"), "", "no such file"}, {"@" + file(t, "hidden"), "", "not valid"},
		{"https://a", filepath.Join(t.TempDir(), "none"), "no such file"},
		{"https://a", file(t, "hidden"), "has 6 bytes"}, {"https://a", file(t, ""), "has 0 bytes"},
		{"https://a", file(t, "whsec_hidden!"), "not base64"},
		{"https://a", file(t, strings.Repeat("x", 5000)), "4096"},
	} {
		_, err := New(test.address, test.secretFile)
		if err == nil || !strings.Contains(err.Error(), test.says) || engine.HintOf(err) == "" ||
			strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s, %s: %v", test.address, test.secretFile, err)
		}
	}
	to, err := New("@"+file(t, "https://user:password@events.example.com:8443/token?key=1\n"),
		file(t, "whsec_"+base64.StdEncoding.EncodeToString([]byte(secret))))
	if err != nil || to.String() != "https://events.example.com:8443" || string(to.secret) != secret {
		t.Errorf("%v, %v", to, err)
	}
}
