package provider

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	of "github.com/open-feature/go-sdk/openfeature"

	"github.com/theseus-cni/theseus/internal/flags/flagset"
)

// sourceHeader reports the state of the server's sources in every answer: READY, STALE, ERROR or NOT_READY.
const sourceHeader = "Theseus-Source-Status"

// server answers OFREP requests from providers; if several have a flag, the first wins.
type server struct {
	providers []*Provider
}

// Handler serves flags by OFREP: one at /ofrep/v1/evaluate/flags/KEY, all at /ofrep/v1/evaluate/flags with an
// ETag. /readyz returns 200 while every source is READY or STALE, because evaluation works then.
func Handler(providers ...*Provider) http.Handler {
	s := &server{providers}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+evaluatePath+"/{key}", s.one)
	mux.HandleFunc("POST "+evaluatePath, s.all)
	mux.HandleFunc("GET /readyz", s.ready)
	return mux
}

// status returns the worst state of the providers.
func (s *server) status() of.State {
	order := []of.State{of.ReadyState, of.StaleState, of.ErrorState, of.NotReadyState}
	worst := of.ReadyState
	for _, p := range s.providers {
		if state := p.Status().State; slices.Index(order, state) > slices.Index(order, worst) {
			worst = state
		}
	}
	return worst
}

// sets returns the current sets; nil if a provider has none yet, because a flag may be in that one.
func (s *server) sets() []*flagset.Set {
	sets := make([]*flagset.Set, len(s.providers))
	for i, p := range s.providers {
		if sets[i] = p.Set(); sets[i] == nil {
			return nil
		}
	}
	return sets
}

func (s *server) ready(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set(sourceHeader, string(s.status()))
	if s.sets() == nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// request reads a context; if it is invalid, it writes the answer and ok is false.
func (s *server) request(w http.ResponseWriter, r *http.Request, key string) (context flagset.Context,
	sets []*flagset.Set, ok bool) {
	w.Header().Set(sourceHeader, string(s.status()))
	var asked ofrepRequest
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&asked)
	var large *http.MaxBytesError
	var other *json.UnmarshalTypeError
	switch {
	case errors.As(err, &other):
		reply(w, http.StatusBadRequest, ofrepResult{Key: key, ErrorCode: flagset.InvalidContext,
			ErrorDetails: "a request must be an object, and its context too"})
		return context, nil, false
	case errors.As(err, &large):
		reply(w, http.StatusRequestEntityTooLarge,
			ofrepFailure{fmt.Sprintf("a request has at most %d bytes", large.Limit)})
		return context, nil, false
	case err != nil:
		reply(w, http.StatusBadRequest, ofrepResult{Key: key, ErrorCode: flagset.ParseError,
			ErrorDetails: "the request is not valid JSON: " + err.Error()})
		return context, nil, false
	}
	if context, err = flagset.NewContext(asked.Context); err != nil {
		reply(w, http.StatusBadRequest,
			ofrepResult{Key: key, ErrorCode: flagset.InvalidContext, ErrorDetails: err.Error()})
		return context, nil, false
	}
	if sets = s.sets(); sets == nil {
		reply(w, http.StatusServiceUnavailable,
			ofrepResult{Key: key, ErrorCode: notReady, ErrorDetails: "no flag set was read yet"})
		return context, nil, false
	}
	return context, sets, true
}

func (s *server) one(w http.ResponseWriter, r *http.Request) {
	key := r.PathValue("key")
	context, sets, ok := s.request(w, r, key)
	if !ok {
		return
	}
	var result flagset.Result
	for _, set := range sets {
		if result = set.Evaluate(key, context, time.Now().Unix()); result.Code != flagset.FlagNotFound {
			break
		}
	}
	status := http.StatusOK
	switch result.Code {
	case "":
	case flagset.FlagNotFound:
		status = http.StatusNotFound
	default:
		status = http.StatusBadRequest
	}
	reply(w, status, answerOf(result))
}

func (s *server) all(w http.ResponseWriter, r *http.Request) {
	context, sets, ok := s.request(w, r, "")
	if !ok {
		return
	}
	now := time.Now().Unix()
	answer := ofrepBulk{Flags: []ofrepResult{}, Metadata: map[string]any{}}
	seen := map[string]bool{}
	for _, set := range sets {
		for _, key := range set.Keys() {
			if !seen[key] {
				seen[key] = true
				answer.Flags = append(answer.Flags, answerOf(set.Evaluate(key, context, now)))
			}
		}
		for key, value := range set.Metadata() {
			if _, ok := answer.Metadata[key]; !ok {
				answer.Metadata[key] = value
			}
		}
	}
	body, err := json.Marshal(answer)
	if err != nil {
		reply(w, http.StatusInternalServerError, ofrepFailure{err.Error()})
		return
	}
	sum := sha256.Sum256(body)
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	w.Header().Set("ETag", tag)
	if matches(r.Header.Values("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // the client is gone, so there is no one to report the error to
}

// matches checks If-None-Match: a list of tags, possibly weak ones, or a star.
func matches(headers []string, tag string) bool {
	for _, header := range headers {
		for part := range strings.SplitSeq(header, ",") {
			if part = strings.TrimPrefix(strings.TrimSpace(part), "W/"); part == tag || part == "*" {
				return true
			}
		}
	}
	return false
}

func answerOf(r flagset.Result) ofrepResult {
	answer := ofrepResult{Key: r.Key, Metadata: maps.Clone(r.Metadata)}
	if r.Code != "" {
		answer.ErrorCode, answer.ErrorDetails = r.Code, r.Message
		return answer
	}
	answer.Reason, answer.Variant = string(r.Reason), r.Variant
	if !r.Default() {
		// The value was decoded from JSON, so encoding cannot fail.
		answer.Value, _ = json.Marshal(r.Value)
	}
	return answer
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client is gone, so there is no one to report the error to
}
