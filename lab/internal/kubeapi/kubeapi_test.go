package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
)

func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return &Client{server: s.URL, http: s.Client()}
}

func TestWatchListsThenFollows(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			fmt.Fprint(w, `{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"n1"}}]}`)
			return
		}
		if got := r.URL.Query().Get("resourceVersion"); got != "7" {
			t.Errorf("watch from %q, want 7", got)
		}
		fmt.Fprint(w, `{"type":"DELETED","object":{"metadata":{"name":"gone"}}}
{"type":"MODIFIED","object":{"metadata":{"name":"n1"},"status":{"conditions":[{"type":"Ready","status":"True"}]}}}`)
	})
	var seen []string
	err := c.Watch(t.Context(), "/api/v1/nodes", func(o Object) bool {
		seen = append(seen, fmt.Sprint(o.Metadata.Name, " ", o.True("Ready")))
		return o.True("Ready")
	})
	if want := []string{"n1 false", "n1 true"}; err != nil || !reflect.DeepEqual(seen, want) {
		t.Errorf("saw %q, %v, want %q", seen, err, want)
	}
}

// A watch that breaks or expires starts again; a refusal is told at once.
func TestWatchAgain(t *testing.T) {
	lists := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			fmt.Fprint(w, `{"type":"ERROR","object":{}}`)
			return
		}
		lists++
		switch lists {
		case 1:
			http.Error(w, "starting", http.StatusServiceUnavailable)
		case 2:
			fmt.Fprint(w, `{"items":[]}`)
		default:
			fmt.Fprint(w, `{"items":[{"metadata":{"name":"late"}}]}`)
		}
	})
	if err := c.Watch(t.Context(), "/x", func(Object) bool { return true }); err != nil || lists != 3 {
		t.Errorf("got %v after %d lists", err, lists)
	}
	refused := serve(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) })
	var status *StatusError
	if err := refused.Watch(t.Context(), "/x", func(Object) bool { return true }); !errors.As(err, &status) ||
		status.Code != 403 {
		t.Errorf("got %v, want the refusal", err)
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			fmt.Fprint(w, `{"items":[]}`)
			return
		}
		w.(http.Flusher).Flush()
		cancel()
		<-r.Context().Done()
	})
	if err := c.Watch(ctx, "/x", func(Object) bool { return false }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was cancelled", err)
	}
}

func TestCreate(t *testing.T) {
	for code, ok := range map[int]bool{201: true, 409: true, 403: false, 500: false} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
		if err := c.Create(t.Context(), "/api/v1/nodes", map[string]string{}); (err == nil) != ok {
			t.Errorf("status %d: got %v", code, err)
		}
	}
}

func TestReady(t *testing.T) {
	asked := 0
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked < 3 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	if err := c.Ready(t.Context()); err != nil || asked != 3 {
		t.Errorf("got %v after %d questions", err, asked)
	}
}
