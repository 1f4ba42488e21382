package serve

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// notes is a log that may be read while it is written.
type notes struct {
	lock sync.Mutex
	text strings.Builder
}

func (n *notes) Write(p []byte) (int, error) {
	n.lock.Lock()
	defer n.lock.Unlock()
	return n.text.Write(p)
}

func (n *notes) String() string {
	n.lock.Lock()
	defer n.lock.Unlock()
	return n.text.String()
}

// TestAskItself holds up a server that answers at once afterwards: the requests of before are logged, and no other.
func TestAskItself(t *testing.T) {
	held := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-held }))
	defer server.Close()
	log := &notes{}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		AskItself(ctx, server.Listener.Addr().(*net.TCPAddr).String(), log)
		close(ended)
	}()
	from := time.Now()
	time.Sleep(slow + slow/2)
	free := time.Now()
	close(held)
	for SlowIn(log.String()) == nil {
		time.Sleep(askEvery)
	}
	stop()
	<-ended
	for _, span := range SlowIn(log.String()) {
		if span.From.Before(from) || span.From.After(free) || span.To.Before(free) || span.To.Sub(span.From) < slow {
			t.Errorf("held up from %s to %s, it logged %v", from, free, span)
		}
	}
}
