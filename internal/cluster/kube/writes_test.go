package kube

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// roundTrip is an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestPaced: of many writes at once, a second's are sent at once and the others at the rate, reads do not wait, and a
// write that is given up is not sent.
func TestPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		p := paced{roundTrip(func(*http.Request) (*http.Response, error) { sent.Add(1); return nil, nil }),
			&bucket{every: time.Second / 50}}
		request := func(ctx context.Context, method string) error {
			r, err := http.NewRequestWithContext(ctx, method, "https://example.org", nil)
			if err != nil {
				t.Error(err)
			}
			_, err = p.RoundTrip(r)
			return err
		}
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() {
				if err := request(t.Context(), http.MethodPatch); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if n := sent.Load(); n != 50 {
			t.Errorf("%d writes are sent at once, want 50", n)
		}
		if err := request(t.Context(), http.MethodGet); err != nil || sent.Load() != 51 {
			t.Errorf("a read waits: %v", err)
		}
		short, cancel := context.WithTimeout(t.Context(), 990*time.Millisecond)
		defer cancel()
		if err := request(short, http.MethodPost); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a write that cannot have its turn in time: %v", err)
		}
		if n := sent.Load(); n != 100 {
			t.Errorf("%d requests are sent after 990 ms, want 100", n)
		}
		all.Wait()
		if n := sent.Load(); n != 201 {
			t.Errorf("%d requests are sent, want 201", n)
		}
	})
}

func TestValidWrites(t *testing.T) {
	for perSecond, valid := range map[int]bool{0: true, -1: false, 1: false, 9: false, 10: true, 50: true, 5000: true} {
		if err := ValidWrites(perSecond); (err == nil) != valid {
			t.Errorf("%d: %v", perSecond, err)
		}
	}
}
