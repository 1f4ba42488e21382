package serve

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"sync"
	"time"
)

// Span is the time that a server took to answer a request of its own machine.
type Span struct{ From, To time.Time }

// slow is how long a server may take to answer its own machine before that is logged; it usually takes a millisecond.
const slow = time.Second

const (
	askEvery = 100 * time.Millisecond
	askLimit = 10 * time.Second
	logged   = "slow to answer itself: from %s to %s\n"
)

// AskItself sends an HTTP request over a new connection to a server on this machine every 100 ms until ctx ends, and
// logs each that had no answer within a second. While that lasts the machine holds the server up, and what clients
// elsewhere lose to it says nothing about the network between them.
func AskItself(ctx context.Context, address string, log io.Writer) {
	client := &http.Client{Timeout: askLimit, Transport: &http.Transport{DisableKeepAlives: true}}
	var asked sync.WaitGroup
	defer asked.Wait()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asked.Go(func() {
			from := time.Now()
			if answer, err := client.Get("http://" + address); err == nil {
				answer.Body.Close()
			}
			if to := time.Now(); to.Sub(from) > slow {
				fmt.Fprintf(log, logged, from.UTC().Format(time.RFC3339Nano), to.UTC().Format(time.RFC3339Nano))
			}
		})
	}
}

var slowLine = regexp.MustCompile(`slow to answer itself: from (\S+) to (\S+)`)

// SlowIn finds, in the log of AskItself, when the server was slow.
func SlowIn(log string) []Span {
	var spans []Span
	for _, match := range slowLine.FindAllStringSubmatch(log, -1) {
		from, err := time.Parse(time.RFC3339Nano, match[1])
		if err != nil {
			continue
		}
		if to, err := time.Parse(time.RFC3339Nano, match[2]); err == nil {
			spans = append(spans, Span{from, to})
		}
	}
	return spans
}
