package web_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/theseus-cni/theseus/internal/run/web"
	"github.com/theseus-cni/theseus/internal/run/web/webtest"
)

// TestClusterOrigins: a page of another site cannot ask the page in the cluster for anything, even if a proxy adds a token.
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
		if code != test.want || header.Get("Access-Control-Allow-Origin") != "" || !strings.HasPrefix(header.Get("Content-Security-Policy"), "default-src 'none'; ") {
			t.Errorf("%s: %d, want %d: %s %v", name, code, test.want, body, header)
		}
	}
}

// TestFeeds: a migration is read while someone looks and a while longer, by one reader, and not too many are.
func TestFeeds(t *testing.T) {
	var started, reading atomic.Int32
	p := webtest.New(t, 3).Plan
	feeds := &web.Feeds{Keep: 20 * time.Millisecond, Start: func(context.Context, string) (*web.Feed, func(context.Context), error) {
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
