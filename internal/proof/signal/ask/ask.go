// Package ask asks the user's signals: a Prometheus by its HTTP API, an address by HTTP, or a command of this machine. Gate lets every
// gate of a run ask them, too. What a signal is and what its answers prove is in package signal.
package ask

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/theseus-cni/theseus/internal/proof/signal"
	"github.com/theseus-cni/theseus/internal/safeio/bounded"
)

const (
	// patience is how long one question may take.
	patience = 10 * time.Second
	// mostBody bounds an answer of a Prometheus, in bytes, and mostHeader the headers of any.
	mostBody   = 1 << 20
	mostHeader = 64 << 10
	// lingers is how long processes that a command leaves behind may keep it from ending.
	lingers = time.Second
)

// Asker asks signals. The zero value is ready to use.
type Asker struct {
	// Patience is how long one question may take; 0 means 10 s.
	Patience time.Duration
}

// All asks all signals at once, and returns their answers in the same order. What is not answered in time is signal.Unknown.
func (a Asker) All(ctx context.Context, signals []signal.Signal) []signal.Answer {
	limit := a.Patience
	if limit <= 0 {
		limit = patience
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answers := make([]signal.Answer, len(signals))
	var all sync.WaitGroup
	for i, one := range signals {
		all.Go(func() {
			answers[i] = ask(ctx, one)
			if answers[i].State == signal.Unknown && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				answers[i] = one.Silent(fmt.Errorf("nothing came within %s", limit))
			}
		})
	}
	all.Wait()
	return answers
}

func ask(ctx context.Context, s signal.Signal) signal.Answer {
	switch {
	case len(s.Command) > 0:
		return run(ctx, s)
	case s.Query == "":
		return check(ctx, s)
	}
	return query(ctx, s)
}

// get asks an address by a connection of its own: a kept one may be of a network that has just been replaced. Redirects are not
// followed: a plan asks the addresses that it names.
func get(ctx context.Context, address string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Cache-Control", "no-cache")
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, MaxResponseHeaderBytes: mostHeader}
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(request)
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err // the address is said anyway
	}
	return answer, err
}

func query(ctx context.Context, s signal.Signal) signal.Answer {
	at, err := url.Parse(s.Address)
	if err != nil {
		return s.Silent(err)
	}
	at = at.JoinPath("api/v1/query")
	parameters := at.Query()
	parameters.Set("query", s.Query)
	at.RawQuery = parameters.Encode()
	answer, err := get(ctx, at.String())
	if err != nil {
		return s.Silent(err)
	}
	defer answer.Body.Close()
	body, err := bounded.ReadAll(answer.Body, mostBody)
	if err != nil {
		return s.Silent(err)
	}
	values, err := signal.ReadAnswer(body)
	if err != nil || answer.StatusCode != http.StatusOK {
		if err == nil {
			err = errors.New("it is no answer to a query")
		}
		if answer.StatusCode != http.StatusOK {
			err = fmt.Errorf("HTTP status %d: %w", answer.StatusCode, err)
		}
		return s.Silent(err)
	}
	return s.Measured(values)
}

func check(ctx context.Context, s signal.Signal) signal.Answer {
	answer, err := get(ctx, s.Address)
	if err != nil {
		return s.Silent(err)
	}
	answer.Body.Close()
	return s.Checked(answer.StatusCode >= 200 && answer.StatusCode <= 299, fmt.Sprintf("HTTP status %d", answer.StatusCode))
}

// run runs a command, and kills it and all that it started when the time is over. Its output is not read: it may hold credentials.
func run(ctx context.Context, s signal.Signal) signal.Answer {
	command := exec.CommandContext(ctx, s.Command[0], s.Command[1:]...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = lingers
	err := command.Run()
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return s.Silent(ctx.Err())
	case errors.As(err, &ended) && ended.ExitCode() >= 0:
		return s.Checked(false, fmt.Sprintf("exit code %d", ended.ExitCode()))
	case err != nil:
		return s.Silent(err) // it was not started, or ended by a signal
	}
	return s.Checked(true, "exit code 0")
}
