package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// leastWorkers and mostWorkers bound how many operations are in progress: more wait in a queue, and their latency
// grows. A responder takes 1,024 connections from one source.
const (
	leastWorkers = 64
	mostWorkers  = 1000
)

// workers is how many operations of a flow are in progress at most: enough for answers that take a quarter of the
// timeout.
func (f *flow) workers() int {
	return min(max(leastWorkers, int(timeout/f.every)/4), mostWorkers)
}

// waits is how long an operation may wait for its worker, beyond the delay of the sender, before it counts as queued.
const waits = time.Millisecond

// operate calls do for every operation of a flow. An operation that has not begun when its time is over is not done any
// more.
func operate(ctx context.Context, f *flow, do func(ctx context.Context, i int) error) {
	queue := make(chan int, len(f.micros))
	var working sync.WaitGroup
	for range f.workers() {
		working.Go(func() {
			for i := range queue {
				if time.Since(f.due(i))-time.Duration(f.late[i])*time.Microsecond > waits {
					f.queued.Add(1)
				}
				until := f.due(i).Add(timeout)
				if ctx.Err() != nil || time.Now().After(until) {
					continue
				}
				within, cancel := context.WithDeadline(ctx, until)
				err := do(within, i)
				cancel()
				if err == nil {
					f.answered(i)
				} else if ctx.Err() == nil {
					f.failed(err)
				}
			}
		})
	}
	f.send(ctx, func(i int) { queue <- i })
	close(queue)
	working.Wait()
}

// connect opens a connection, has a byte echoed, and resets the connection: otherwise connection tracking keeps it for
// two minutes.
func connect(target string) func(context.Context, int) error {
	dialer := net.Dialer{KeepAlive: -1}
	return func(ctx context.Context, _ int) error {
		conn, err := dialer.DialContext(ctx, "tcp", target)
		if err != nil {
			return err
		}
		defer conn.Close()
		deadline, _ := ctx.Deadline()
		conn.SetDeadline(deadline) //nolint:errcheck // the read below would fail as well
		one := []byte{'?'}
		if _, err := conn.Write(one); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, one); err != nil {
			return err
		}
		return conn.(*net.TCPConn).SetLinger(0)
	}
}

// request sends an HTTP request on a kept connection. close closes the connections.
func request(target string) (do func(context.Context, int) error, end func()) {
	transport := &http.Transport{MaxIdleConns: mostWorkers, MaxIdleConnsPerHost: mostWorkers,
		MaxConnsPerHost: mostWorkers, DisableCompression: true}
	client := &http.Client{Transport: transport}
	return func(ctx context.Context, _ int) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+target+pathPage, nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			return err
		}
		if answer.StatusCode != http.StatusOK {
			return errors.New(answer.Status)
		}
		return nil
	}, transport.CloseIdleConnections
}

// resolve asks the name server of this pod, which it returns as host:port, for the address of the Service kubernetes,
// whose name every cluster has.
func resolve(file string) (do func(context.Context, int) error, server string, err error) {
	config, err := dns.ClientConfigFromFile(file)
	if err != nil {
		return nil, "", fmt.Errorf("the pod's name server cannot be read: %w", err)
	}
	name := ""
	for _, domain := range config.Search { // NAMESPACE.svc.DOMAIN
		if _, service, ok := strings.Cut(domain, ".svc."); ok {
			name = "kubernetes.default.svc." + service
			break
		}
	}
	if name == "" || len(config.Servers) == 0 {
		return nil, "", fmt.Errorf("the pod's %s has no name server of the cluster", file)
	}
	server = net.JoinHostPort(config.Servers[0], config.Port)
	return func(ctx context.Context, _ int) error {
		question := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA)
		answer, _, err := (&dns.Client{}).ExchangeContext(ctx, question, server)
		switch {
		case err != nil:
			return err
		case answer.Rcode != dns.RcodeSuccess:
			return fmt.Errorf("the name server answers %s for %s", dns.RcodeToString[answer.Rcode], name)
		case len(answer.Answer) == 0:
			return fmt.Errorf("the name server's answer for %s is empty", name)
		}
		return nil
	}, server, nil
}

// resolvConf is the pod's configuration of DNS.
const resolvConf = "/etc/resolv.conf"

// failure is the text of an error, without the part that differs from one operation to the next.
func failure(err error) string {
	if failed := (*net.OpError)(nil); errors.As(err, &failed) {
		if errors.Is(failed.Err, os.ErrDeadlineExceeded) {
			return fmt.Sprintf("%s %s: no answer within %s", failed.Op, failed.Net, timeout)
		}
		return fmt.Sprintf("%s %s: %v", failed.Op, failed.Net, failed.Err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("no answer within %s", timeout)
	}
	return err.Error()
}
