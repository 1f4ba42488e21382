// Package ask asks the user's signals: a Prometheus by its HTTP API, an address by HTTP, or a command of this machine.
// Gate lets every gate of a run ask them, too. Package signal defines signals, and what their answers prove.
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
	"github.com/theseus-cni/theseus/internal/safeio/group"
)

const (
	// patience is how long one question may take.
	patience = 10 * time.Second
	// mostBody bounds an answer of a Prometheus, in bytes, and mostHeader the headers of any.
	mostBody   = 1 << 20
	mostHeader = 64 << 10
	// lingers is how long processes that a command leaves behind may keep it from ending, and how long a question may
	// take to end when its time is over. Some do not even then: SIGKILL ends no process that waits for a dead file
	// system.
	lingers = time.Second
	// lookback is how old a sample may be that a query finds, in Prometheus' notation. Prometheus' own limit is 5m:
	// longer than most gates measure.
	lookback = "2m"
)

// Begin asks signals, and gives one round of answers. It returns at once.
type Begin func(context.Context, []signal.Signal) <-chan []signal.Answer

// Asker asks signals. The zero value is ready to use.
type Asker struct {
	// Patience is how long one question may take; 0 means 10 s.
	Patience time.Duration

	lock sync.Mutex
	// running are the commands whose processes have not ended yet.
	running map[string]bool
	// question is ask, but for tests.
	question func(context.Context, signal.Signal) (signal.Answer, error)
}

// unasked is an error because of which a signal was not asked.
type unasked struct{ error }

// Begin asks as All does, and returns at once.
func (a *Asker) Begin(ctx context.Context, signals []signal.Signal) <-chan []signal.Answer {
	round := make(chan []signal.Answer, 1)
	go func() { round <- a.All(ctx, signals) }()
	return round
}

// All asks all signals at once, and returns their answers in the same order, soon after the patience is over at the
// latest. When the context ends, those that have not answered are signal.Unknown.
func (a *Asker) All(ctx context.Context, signals []signal.Signal) []signal.Answer {
	limit := a.Patience
	if limit <= 0 {
		limit = patience
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	late := func(one signal.Signal) signal.Answer {
		if err := ctx.Err(); err != nil {
			return one.Silent(err)
		}
		return one.NoAnswer(fmt.Errorf("nothing came within %s", limit))
	}
	type numbered struct {
		at     int
		answer signal.Answer
	}
	came, question := make(chan numbered, len(signals)), a.question
	if question == nil {
		question = a.ask
	}
	for i, one := range signals {
		go func() {
			answer, err := question(bounded, one)
			var not unasked
			switch {
			case err == nil:
			case bounded.Err() != nil:
				answer = late(one)
			case errors.As(err, &not):
				answer = one.Silent(err)
			default:
				answer = one.NoAnswer(err)
			}
			came <- numbered{i, answer}
		}()
	}
	over := make(chan struct{})
	defer context.AfterFunc(bounded, func() { time.AfterFunc(2*lingers, func() { close(over) }) })()
	answers := make([]signal.Answer, len(signals))
	for range signals {
		select {
		case one := <-came:
			answers[one.at] = one.answer
			continue
		case <-over:
		}
		break
	}
	for i, one := range signals {
		if answers[i].State == "" {
			answers[i] = late(one)
		}
	}
	return answers
}

func (a *Asker) ask(ctx context.Context, s signal.Signal) (signal.Answer, error) {
	switch {
	case len(s.Command) > 0:
		return a.run(ctx, s)
	case s.Query == "":
		return check(ctx, s)
	}
	return query(ctx, s)
}

// get asks an address by a connection of its own: a kept one may be of a network that has just been replaced. Redirects
// are not followed: a plan asks the addresses that it names.
func get(ctx context.Context, address string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Cache-Control", "no-cache")
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true,
		MaxResponseHeaderBytes: mostHeader}
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	answer, err := client.Do(request)
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err // the address is said anyway
	}
	return answer, err
}

func query(ctx context.Context, s signal.Signal) (signal.Answer, error) {
	at, err := url.Parse(s.Address)
	if err != nil {
		return signal.Answer{}, err
	}
	at = at.JoinPath("api/v1/query")
	parameters := at.Query()
	parameters.Set("query", s.Query)
	parameters.Set("lookback_delta", lookback)
	at.RawQuery = parameters.Encode()
	answer, err := get(ctx, at.String())
	if err != nil {
		return signal.Answer{}, err
	}
	defer answer.Body.Close()
	body, err := bounded.ReadAll(answer.Body, mostBody)
	if err != nil {
		return signal.Answer{}, err
	}
	values, err := signal.ReadAnswer(body, time.Now())
	if answer.StatusCode != http.StatusOK {
		if err == nil {
			err = errors.New("it is not an answer to a query")
		}
		err = fmt.Errorf("HTTP status %d: %w", answer.StatusCode, err)
	}
	if err != nil {
		return signal.Answer{}, err
	}
	return s.Measured(values), nil
}

func check(ctx context.Context, s signal.Signal) (signal.Answer, error) {
	answer, err := get(ctx, s.Address)
	if err != nil {
		return signal.Answer{}, err
	}
	answer.Body.Close()
	return s.Checked(answer.StatusCode >= 200 && answer.StatusCode <= 299,
		fmt.Sprintf("HTTP status %d", answer.StatusCode)), nil
}

// run runs a command, and kills it when the time is over. Nothing that it started outlives it. Its output is not read:
// it may hold credentials. A command whose last run has not ended is not run again.
func (a *Asker) run(ctx context.Context, s signal.Signal) (signal.Answer, error) {
	if !a.enter(s.String()) {
		return signal.Answer{}, errors.New("its previous run has not ended")
	}
	defer a.leave(s.String())
	command := exec.CommandContext(ctx, s.Command[0], s.Command[1:]...)
	group.Own(command, syscall.SIGKILL, lingers)
	if err := command.Start(); err != nil {
		return signal.Answer{}, unasked{err}
	}
	err := command.Wait()
	_ = group.Send(command, syscall.SIGKILL) // what it left behind
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return signal.Answer{}, ctx.Err()
	case errors.As(err, &ended) && ended.ExitCode() >= 0:
		return s.Checked(false, fmt.Sprintf("exit code %d", ended.ExitCode())), nil
	case err != nil:
		return signal.Answer{}, err
	}
	return s.Checked(true, "exit code 0"), nil
}

func (a *Asker) enter(text string) bool {
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.running[text] {
		return false
	}
	if a.running == nil {
		a.running = map[string]bool{}
	}
	a.running[text] = true
	return true
}

func (a *Asker) leave(text string) {
	a.lock.Lock()
	defer a.lock.Unlock()
	delete(a.running, text)
}
