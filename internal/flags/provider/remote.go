package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	of "github.com/open-feature/go-sdk/openfeature"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/flags/flagset"
)

// Bounds of a remote provider.
const (
	remoteTimeout = 5 * time.Second
	// maxAnswers is the number of answers kept for when the server is unavailable.
	maxAnswers = 10_000
)

// StaleReason marks an answer given before the server, or the server's own source, became unavailable.
const StaleReason of.Reason = "STALE"

// Remote evaluates flags at a server that speaks OFREP. While the server is unavailable, it returns the last answer to
// the same request, with the reason STALE. It is safe for concurrent use.
type Remote struct {
	follower

	base   string
	header http.Header
	client *http.Client
	poll   time.Duration
	events chan of.Event

	mu      sync.Mutex // guards the fields below
	state   of.State
	answers map[string]ofrepResult
	until   time.Time // no request before: the server sent Retry-After
	tag     string
	seen    map[string]string // the server's last answer for each flag
}

var (
	_ of.FeatureProvider          = (*Remote)(nil)
	_ of.ContextAwareStateHandler = (*Remote)(nil)
	_ of.EventHandler             = (*Remote)(nil)
)

// NewRemote makes a provider for the server at a URL. Every request has the header; poll is how often the provider
// asks the server for changes, and so also how fast it notices that the server is unavailable.
func NewRemote(base string, header http.Header, poll time.Duration) (*Remote, error) {
	parsed, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	if parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" {
		return nil, fmt.Errorf("%q is not the URL of a server", base)
	}
	return &Remote{base: strings.TrimRight(base, "/"), header: header,
		client: &http.Client{Timeout: remoteTimeout}, poll: poll, events: make(chan of.Event, 16),
		state: of.NotReadyState, answers: map[string]ofrepResult{}}, nil
}

// Metadata implements of.FeatureProvider.
func (r *Remote) Metadata() of.Metadata { return of.Metadata{Name: r.base} }

// Hooks implements of.FeatureProvider.
func (r *Remote) Hooks() []of.Hook { return nil }

// EventChannel implements of.EventHandler.
func (r *Remote) EventChannel() <-chan of.Event { return r.events }

// Init asks the server once and then polls it, like Provider.Init.
func (r *Remote) Init(evaluation of.EvaluationContext) error {
	return r.InitWithContext(context.Background(), evaluation)
}

// InitWithContext is Init with a bound.
func (r *Remote) InitWithContext(ctx context.Context, _ of.EvaluationContext) error {
	return r.begin(ctx, r.ask, func(ctx context.Context) {
		for outage.Sleep(ctx, r.poll) == nil {
			_ = r.ask(ctx) // the event contains the error
		}
	})
}

// ask requests all flags, with an empty context, to detect changes.
func (r *Remote) ask(ctx context.Context) error {
	r.mu.Lock()
	tag := r.tag
	r.mu.Unlock()
	answer, err := r.post(ctx, evaluatePath, tag, ofrepRequest{Context: map[string]any{of.TargetingKey: "theseus"}})
	if err != nil {
		if ctx.Err() == nil {
			r.gone(err)
		}
		return err
	}
	var changes []string
	if answer.status != http.StatusNotModified {
		if changes, err = r.learn(answer); err != nil {
			r.gone(err)
			return err
		}
	}
	if answer.source == string(of.StaleState) {
		r.gone(errors.New("the server's own source is STALE"))
	} else if r.become(of.ReadyState) {
		emit(r.events, of.Event{ProviderName: r.base, EventType: of.ProviderReady})
	}
	if len(changes) > 0 {
		emit(r.events, of.Event{ProviderName: r.base, EventType: of.ProviderConfigChange,
			ProviderEventDetails: of.ProviderEventDetails{FlagChanges: changes}})
	}
	return nil
}

// learn stores the server's answers, and returns the flags whose answers changed.
func (r *Remote) learn(answer answered) ([]string, error) {
	var all ofrepBulk
	if answer.status != http.StatusOK {
		return nil, fmt.Errorf("%s: it answers %d to a request for all flags: %s",
			r.base, answer.status, bytes.TrimSpace(answer.body))
	}
	if err := json.Unmarshal(answer.body, &all); err != nil {
		return nil, fmt.Errorf("%s: its answer is not valid OFREP: %w", r.base, err)
	}
	now := make(map[string]string, len(all.Flags))
	for _, one := range all.Flags {
		now[one.Key] = fmt.Sprintf("%s %s %s %s", one.Reason, one.Variant, one.Value, one.ErrorCode)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.seen
	r.seen, r.tag = now, answer.tag
	if before == nil {
		return nil, nil
	}
	var changes []string
	for key, said := range now {
		if before[key] != said {
			changes = append(changes, key)
		}
	}
	for key := range before {
		if _, ok := now[key]; !ok {
			changes = append(changes, key)
		}
	}
	slices.Sort(changes)
	return changes, nil
}

// gone records that the server is unavailable: the state is STALE if it was available before, else ERROR.
func (r *Remote) gone(err error) {
	r.mu.Lock()
	known := r.seen != nil
	r.mu.Unlock()
	state, event := of.StaleState, of.ProviderStale
	if !known {
		state, event = of.ErrorState, of.ProviderError
	}
	if r.become(state) {
		emit(r.events, of.Event{ProviderName: r.base, EventType: event,
			ProviderEventDetails: of.ProviderEventDetails{Message: err.Error()}})
	}
}

func (r *Remote) become(state of.State) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := r.state != state
	r.state = state
	return changed
}

// answered is a server's answer; the status is one for which OFREP defines a body, or 304.
type answered struct {
	status      int
	tag, source string
	body        []byte
}

// post sends a request. An error means that the server did not answer it.
func (r *Remote) post(ctx context.Context, path, tag string, question any) (answered, error) {
	r.mu.Lock()
	quiet := time.Until(r.until)
	r.mu.Unlock()
	if quiet > 0 {
		return answered{}, fmt.Errorf("%s asks to wait for %v more", r.base, quiet.Round(time.Second))
	}
	body, err := json.Marshal(question)
	if err != nil {
		return answered{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.base+path, bytes.NewReader(body))
	if err != nil {
		return answered{}, err
	}
	request.Header = r.header.Clone()
	if request.Header == nil {
		request.Header = http.Header{}
	}
	request.Header.Set("Content-Type", "application/json")
	if tag != "" {
		request.Header.Set("If-None-Match", tag)
	}
	response, err := r.client.Do(request)
	if err != nil {
		return answered{}, err
	}
	defer response.Body.Close()
	answer := answered{status: response.StatusCode, tag: response.Header.Get("ETag"),
		source: response.Header.Get(sourceHeader)}
	if answer.body, err = io.ReadAll(io.LimitReader(response.Body, maxBody+1)); err != nil {
		return answered{}, err
	}
	if len(answer.body) > maxBody {
		return answered{}, fmt.Errorf("%s: its answer is larger than %d bytes", r.base, maxBody)
	}
	switch answer.status {
	case http.StatusOK, http.StatusNotModified, http.StatusBadRequest, http.StatusNotFound:
		return answer, nil
	case http.StatusTooManyRequests:
		r.mu.Lock()
		r.until = time.Now().Add(retryAfter(response.Header.Get("Retry-After")))
		r.mu.Unlock()
	}
	return answered{}, fmt.Errorf("%s: it answers %s", r.base, response.Status)
}

// retryAfter parses seconds or a date; 10 s if it is neither, at most an hour.
func retryAfter(header string) time.Duration {
	wait := 10 * time.Second
	if seconds, err := strconv.Atoi(header); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(header); err == nil {
		wait = time.Until(at)
	}
	return min(max(wait, 0), time.Hour)
}

// evaluate requests one flag; stale is true if the answer is an old one.
func (r *Remote) evaluate(ctx context.Context, key string, values of.FlattenedContext) (result ofrepResult,
	stale bool, err error) {
	question := ofrepRequest{Context: values}
	// The keys of a JSON object are sorted, so equal requests have equal text.
	text, err := json.Marshal(question)
	if err != nil {
		return result, false, err
	}
	remembered := key + "\x00" + string(text)
	answer, err := r.post(ctx, evaluatePath+"/"+url.PathEscape(key), "", question)
	if err == nil {
		if err = json.Unmarshal(answer.body, &result); err == nil {
			r.remember(remembered, result)
			return result, answer.source == string(of.StaleState), nil
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if old, ok := r.answers[remembered]; ok {
		return old, true, nil
	}
	return result, false, err
}

func (r *Remote) remember(question string, answer ofrepResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.answers) >= maxAnswers {
		for some := range r.answers {
			delete(r.answers, some)
			break
		}
	}
	r.answers[question] = answer
}

// BooleanEvaluation implements of.FeatureProvider.
func (r *Remote) BooleanEvaluation(ctx context.Context, key string, fallback bool,
	values of.FlattenedContext) of.BoolResolutionDetail {
	return resolveRemote(ctx, r, flagset.Boolean, key, fallback, values)
}

// StringEvaluation implements of.FeatureProvider.
func (r *Remote) StringEvaluation(ctx context.Context, key string, fallback string,
	values of.FlattenedContext) of.StringResolutionDetail {
	return resolveRemote(ctx, r, flagset.String, key, fallback, values)
}

// FloatEvaluation implements of.FeatureProvider.
func (r *Remote) FloatEvaluation(ctx context.Context, key string, fallback float64,
	values of.FlattenedContext) of.FloatResolutionDetail {
	return resolveRemote(ctx, r, flagset.Float, key, fallback, values)
}

// IntEvaluation implements of.FeatureProvider.
func (r *Remote) IntEvaluation(ctx context.Context, key string, fallback int64,
	values of.FlattenedContext) of.IntResolutionDetail {
	return resolveRemote(ctx, r, flagset.Integer, key, fallback, values)
}

// ObjectEvaluation implements of.FeatureProvider.
func (r *Remote) ObjectEvaluation(ctx context.Context, key string, fallback any,
	values of.FlattenedContext) of.InterfaceResolutionDetail {
	return resolveRemote(ctx, r, flagset.Object, key, fallback, values)
}

// Evaluate evaluates a flag of any type. A server does not report operators, so trace is not called.
func (r *Remote) Evaluate(ctx context.Context, key string, values map[string]any, _ func(flagset.Step)) flagset.Result {
	answer, stale, err := r.evaluate(ctx, key, values)
	result := flagset.Result{Key: key, Variant: answer.Variant, Reason: flagset.Reason(answer.Reason),
		Metadata: answer.Metadata, Code: answer.ErrorCode, Message: answer.ErrorDetails}
	if err == nil && len(answer.Value) > 0 {
		err = json.Unmarshal(answer.Value, &result.Value)
	}
	switch {
	case err != nil:
		result.Code, result.Message = flagset.General, err.Error()
	case result.Code == "" && result.Value == nil && result.Reason != flagset.Disabled:
		// Without a value the caller's default applies, whatever the server's reason is.
		result.Variant, result.Reason = "", flagset.Default
	case stale && result.Code == "":
		result.Reason = flagset.Reason(StaleReason)
	}
	if result.Code != "" {
		result.Reason = flagset.Failed
	}
	return result
}

func resolveRemote[T any](ctx context.Context, r *Remote, kind flagset.Kind, key string, fallback T,
	values of.FlattenedContext) of.GenericResolutionDetail[T] {
	return detail(r.Evaluate(ctx, key, values, nil).As(kind), fallback)
}
