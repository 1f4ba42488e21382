// Package names provides the surroundings of clusters whose services' names move: a zone on real BIND, unbound in front
// of it, and clients that resolve names and send requests without pause and count failures.
package names

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Target is a service, with its address at each of the two clusters.
type Target struct {
	Host     string `json:"host"`
	Original string `json:"original"`
	Mirror   string `json:"mirror"`
}

// Clients send requests to every target without pause, one client each, with a new connection each time.
type Clients struct {
	Resolver string        `json:"resolver"` // host:port
	Port     int           `json:"port"`     // of the services
	Targets  []Target      `json:"targets"`
	Pause    time.Duration `json:"pause"` // between two requests of a client
}

// Tally has the clients' results.
type Tally struct {
	Requests int64 `json:"requests"`
	// Mirror is how many of them the mirror answered.
	Mirror int64 `json:"mirror"`
	// Failed counts requests with no or an unexpected address, no answer, or the answer of another service. Wrong has
	// the first of them in words.
	Failed int64    `json:"failed"`
	Wrong  []string `json:"wrong,omitempty"`
	// Gap is the longest time between two right answers for one name.
	Gap time.Duration `json:"gap"`
}

const (
	mostWrong = 20
	patience  = 10 * time.Second // of one request
	// fresh is the greatest age of a name server's answer for which it is still used: less than the 2 s that names
	// live. A client that was stalled in between asks again, but not too often in a row.
	fresh, askAgain = time.Second, 5
)

// Run sends requests until the context ends; requests in flight are finished.
func (c *Clients) Run(ctx context.Context) Tally {
	var lock sync.Mutex
	var all sync.WaitGroup
	seen := Tally{}
	for _, target := range c.Targets {
		all.Go(func() {
			right := time.Now()
			for {
				select {
				case <-ctx.Done():
					return
				case <-time.After(c.Pause):
				}
				mirror, err := c.ask(target)
				lock.Lock()
				seen.Requests++
				if mirror {
					seen.Mirror++
				}
				if err != nil {
					seen.Failed++
				} else {
					seen.Gap, right = max(seen.Gap, time.Since(right)), time.Now()
				}
				if err != nil && len(seen.Wrong) < mostWrong {
					seen.Wrong = append(seen.Wrong,
						fmt.Sprintf("%s %s: %v", time.Now().Format("15:04:05.000"), target.Host, err))
				}
				lock.Unlock()
			}
		})
	}
	all.Wait()
	return seen
}

// errStale says that a name was looked up too long ago.
var errStale = errors.New("the name server's answer is too old")

// ask sends one request. The service of s3.shop.example.org answers with a name that begins with s3-.
func (c *Clients) ask(target Target) (mirror bool, err error) {
	for range askAgain {
		if mirror, err = c.askOnce(target); !errors.Is(err, errStale) {
			break
		}
	}
	return mirror, err
}

func (c *Clients) askOnce(target Target) (mirror bool, err error) {
	asked := time.Now()
	found := Lookup(c.Resolver, target.Host)
	if len(found) != 1 || found[0] != target.Original && found[0] != target.Mirror {
		return false, fmt.Errorf("it has the addresses %v", found)
	}
	mirror = found[0] == target.Mirror
	request, err := http.NewRequest(http.MethodGet, "http://"+net.JoinHostPort(found[0], strconv.Itoa(c.Port)), nil)
	if err != nil {
		return mirror, err
	}
	request.Host = target.Host
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil && time.Since(asked) > fresh {
			conn.Close()
			return nil, errStale
		}
		return conn, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}, Timeout: patience}
	response, err := client.Do(request)
	if err != nil {
		return mirror, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return mirror, err
	}
	service, _, _ := strings.Cut(target.Host, ".")
	if response.StatusCode != http.StatusOK || !strings.HasPrefix(string(body), service+"-") {
		return mirror, fmt.Errorf("%s answers %s %q", found[0], response.Status, body)
	}
	return mirror, nil
}

// Lookup asks one server for the addresses of a name; none when it has none, or does not answer.
func Lookup(server, name string) []string {
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server)
	}}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found, _ := resolver.LookupHost(ctx, name+".") //nolint:errcheck // none is what counts
	return found
}

// Await waits until every target has answered.
func (c *Clients) Await(ctx context.Context) error {
	for _, target := range c.Targets {
		for {
			_, err := c.ask(target)
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s never answered: %w", target.Host, err)
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
	return nil
}
