package web_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/web"
	"github.com/theseus-cni/theseus/internal/run/web/webtest"
)

// TestClusterOrigins: a page of another site cannot ask the page in the cluster for anything, even if a proxy adds a
// token.
func TestClusterOrigins(t *testing.T) {
	gate, err := web.NewCluster(&rest.Config{Host: "https://192.0.2.1"}, "v0", &web.Feeds{})
	if err != nil {
		t.Fatal(err)
	}
	page := web.Serve(gate, nil)
	for name, test := range map[string]struct {
		method, path, origin, site string
		want                       int
	}{
		"itself":           {http.MethodPost, "/do", "https://page.example", "same-origin", http.StatusUnauthorized},
		"a link":           {http.MethodGet, "/", "", "cross-site", http.StatusOK},
		"another site":     {http.MethodPost, "/do", "https://evil.example", "cross-site", http.StatusForbidden},
		"another port":     {http.MethodPost, "/do", "https://page.example:8443", "same-site", http.StatusForbidden},
		"an older browser": {http.MethodPost, "/do", "https://evil.example", "", http.StatusForbidden},
		"null":             {http.MethodPost, "/do", "null", "", http.StatusForbidden},
		"a reader":         {http.MethodGet, "/plan", "https://evil.example", "", http.StatusForbidden},
		"a picture":        {http.MethodGet, "/page.js", "", "cross-site", http.StatusForbidden},
		"a preflight":      {http.MethodOptions, "/plan", "https://evil.example", "cross-site", http.StatusForbidden},
	} {
		r := httptest.NewRequest(test.method, "https://page.example"+test.path, strings.NewReader("{}"))
		for key, value := range map[string]string{"Origin": test.origin, "Sec-Fetch-Site": test.site} {
			if value != "" {
				r.Header.Set(key, value)
			}
		}
		code, body, header := answer(page, r)
		if code != test.want || header.Get("Access-Control-Allow-Origin") != "" ||
			!strings.HasPrefix(header.Get("Content-Security-Policy"), "default-src 'none'; ") {
			t.Errorf("%s: %d, want %d: %s %v", name, code, test.want, body, header)
		}
	}
}

// reviewed is what an access review asks for.
func reviewed(t *testing.T, r *http.Request) authorizationv1.ResourceAttributes {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	var review authorizationv1.SelfSubjectAccessReview
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, &review); err != nil ||
		review.Spec.ResourceAttributes == nil {
		t.Errorf("%+v %v", review, err)
		return authorizationv1.ResourceAttributes{}
	}
	return *review.Spec.ResourceAttributes
}

// apiServer answers the requests of people by their tokens. "hangs..." has no answer until the test ends, and "noel"
// may do all but read ConfigMaps.
func apiServer(t *testing.T, refuses *atomic.Bool, hanging *atomic.Int32) *httptest.Server {
	t.Helper()
	end := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasPrefix(token, "hangs"):
			hanging.Add(1)
			<-end
		case refuses.Load():
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}`)
		case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
			fmt.Fprintf(w,
				`{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":{"username":%q}}}`,
				token)
		case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
			of := reviewed(t, r)
			if of.Namespace != v1alpha1.Namespace || (of.Group == v1alpha1.Group) == (of.Resource == "configmaps") {
				t.Errorf("asked for %+v", of)
			}
			fmt.Fprintf(w,
				`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":%t}}`,
				token != "noel" || of.Resource != "configmaps")
		case strings.HasSuffix(r.URL.Path, "/migrations"):
			fmt.Fprint(w,
				`{"kind":"MigrationList","apiVersion":"theseus.dev/v1alpha1","items":[{"kind":"Migration","apiVersion":"theseus.dev/v1alpha1","metadata":{"name":"d"}}]}`)
		default:
			t.Errorf("asked for %s", r.URL.Path)
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(end) })
	return server
}

// TestActs: a person acts whatever others look at, and however many strangers send tokens. A token that does not hold
// any more is not known either.
func TestActs(t *testing.T) {
	var refuses atomic.Bool
	var hanging atomic.Int32
	server := apiServer(t, &refuses, &hanging)
	p := webtest.New(t, 3).Plan
	feeds := &web.Feeds{Start: func(context.Context, string) (*web.Feed, func(context.Context), error) {
		return web.NewFeed(p), func(ctx context.Context) { <-ctx.Done() }, nil
	}}
	gate, err := web.NewCluster(&rest.Config{Host: server.URL}, "v0", feeds)
	if err != nil {
		t.Fatal(err)
	}
	gate.Acts = func(*kube.Client, string, func(...web.Right) (bool, error)) (web.Actions,
		error) {
		return &acts{}, nil
	}
	page := web.Serve(gate, nil)
	ask := func(path, token string) (int, string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://page.example"+path, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		code, body, _ := answer(page, r)
		return code, body
	}
	for _, name := range []string{"a", "b", "c"} { // others look at these
		if _, _, err := feeds.Open(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if code, body := ask("/plan?migration=d", "ada"); code != http.StatusOK || !strings.Contains(body, `"name":"d"`) ||
		!strings.Contains(body, `"waits":true`) || !strings.Contains(body, `"actions":["pause"`) {
		t.Errorf("%d %s", code, body)
	}
	if code, body := ask("/feed?migration=d", "ada"); code != http.StatusServiceUnavailable ||
		!strings.Contains(body, "3 other migrations") {
		t.Errorf("%d %s", code, body)
	}
	if code, body := ask("/plan?migration=d", "noel"); code != http.StatusForbidden ||
		!strings.Contains(body, "noel may not get configmaps in the namespace theseus-system") {
		t.Errorf("without the right to the evidence: %d %s", code, body)
	}
	for _, path := range []string{"/plan", "/question?migration=d&action=pause"} {
		refuses.Store(false)
		if code, body := ask(path, "bea"); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, body)
		}
		refuses.Store(true)
		for range 2 {
			if code, body := ask(path, "bea"); code != http.StatusUnauthorized ||
				!strings.Contains(body, "does not accept this token") {
				t.Errorf("%s, expired: %d %s", path, code, body)
			}
		}
	}
	refuses.Store(false)
	for i := range 40 {
		go ask("/plan", fmt.Sprint("hangs", i)) // ends with the test
	}
	for until := time.Now().Add(time.Minute); hanging.Load() < 4; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the API server is not asked")
		}
	}
	for range 3 {
		if code, body := ask("/question?migration=d&action=pause", "ada"); code != http.StatusOK {
			t.Errorf("while strangers ask: %d %s", code, body)
		}
	}
}

// TestFeeds: a migration is read while someone looks and a while longer, by one reader, and not too many are.
func TestFeeds(t *testing.T) {
	var started, reading atomic.Int32
	p := webtest.New(t, 3).Plan
	feeds := &web.Feeds{Keep: 20 * time.Millisecond, Start: func(context.Context, string) (*web.Feed,
		func(context.Context), error) {
		started.Add(1)
		return web.NewFeed(p), func(ctx context.Context) {
			reading.Add(1)
			<-ctx.Done()
			reading.Add(-1)
		}, nil
	}}
	open := func(name string) func() {
		t.Helper()
		_, gone, err := feeds.Open(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return gone
	}
	is := func(what string, ok func() bool) {
		t.Helper()
		for until := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("not within a minute: %s; %d started, %d read", what, started.Load(), reading.Load())
			}
		}
	}
	first, second := open("a"), open("a")
	first()
	first() // counts once
	is("one reads for both", func() bool { return started.Load() == 1 && reading.Load() == 1 })
	b, c := open("b"), open("c")
	if _, _, err := feeds.Open(t.Context(), "d"); err == nil || !strings.Contains(err.Error(), "3 other migrations") {
		t.Errorf("a fourth one: %v", err)
	}
	is("three are read", func() bool { return reading.Load() == 3 })
	second()
	b()
	c()
	is("none is read", func() bool { return reading.Load() == 0 })
	open("d")()
}

// TestFeedsMakeRoom: a feed without viewers makes room, the one that has been idle longest first. A migration that is
// slow to read delays only those who look at it, and one that cannot be read, or has nothing more to read, is not kept.
func TestFeedsMakeRoom(t *testing.T) {
	p := webtest.New(t, 3).Plan
	stopped, loading, withdrawn := make(chan string, 9), make(chan struct{}), make(chan struct{})
	fails := errors.New("no such migration")
	feeds := &web.Feeds{Keep: time.Hour, Start: func(ctx context.Context, name string) (*web.Feed,
		func(context.Context), error) {
		switch name {
		case "slow":
			<-loading
		case "fails":
			return nil, nil, fails
		}
		return web.NewFeed(p), func(ctx context.Context) {
			select {
			case <-ctx.Done():
			case <-map[string]chan struct{}{"e": withdrawn}[name]:
			}
			stopped <- name
		}, nil
	}}
	open := func(name string) func() {
		t.Helper()
		_, gone, err := feeds.Open(t.Context(), name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return gone
	}
	open("a")
	open("b")()
	open("c")()
	gone := open("d")
	if first := <-stopped; first != "b" {
		t.Errorf("%s made room", first)
	}
	gone()
	if _, _, err := feeds.Open(t.Context(), "fails"); !errors.Is(err, fails) {
		t.Errorf("%v", err)
	}
	if first := <-stopped; first != "c" {
		t.Errorf("%s made room", first)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := feeds.Open(ctx, "slow"); !errors.Is(err, context.Canceled) {
		t.Errorf("who has gone waits: %v", err)
	}
	open("a")() // while slow is read
	slow := make(chan error, 1)
	go func() {
		_, _, err := feeds.Open(t.Context(), "slow")
		slow <- err
	}()
	close(loading)
	if err := <-slow; err != nil {
		t.Error(err)
	}
	open("e") // d makes room
	if first := <-stopped; first != "d" {
		t.Errorf("%s made room", first)
	}
	close(withdrawn)
	if last := <-stopped; last != "e" {
		t.Errorf("%s ended", last)
	}
	// there is room again, though a viewer of e is left
	for until := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, _, err := feeds.Open(t.Context(), "f"); err == nil {
			break
		} else if time.Now().After(until) {
			t.Fatal(err)
		}
	}
}
