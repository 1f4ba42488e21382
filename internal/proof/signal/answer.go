package signal

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/safeio/printable"
)

// State is what an answer proves.
type State string

// The states of an answer.
const (
	// Holds: the signal is as demanded.
	Holds State = "holds"
	// Fails: it was measured, and is not as demanded.
	Fails State = "fails"
	// Unknown: there is no answer, or none that is a measurement. It is never a pass. For an HTTP check or a command
	// that was asked, no answer is the measurement: it Fails.
	Unknown State = "unknown"
)

// Answer is what a signal said once.
type Answer struct {
	// Signal is the text of the signal.
	Signal string `json:"signal"`
	State  State  `json:"state"`
	// Says is the answer in words, such as "errors / requests is 0.2, and must be < 0.05".
	Says string `json:"says"`
}

// Measured is the answer of a query that yielded these numbers.
func (s Signal) Measured(values []float64) Answer {
	if len(values) == 0 {
		return s.Silent(errors.New("the query yields no data"))
	}
	bad := slices.DeleteFunc(slices.Clone(values), s.holds)
	if len(bad) == 0 {
		return Answer{s.text, Holds, fmt.Sprintf("%s is %s", s.Query, span(values))}
	}
	of := ""
	if len(values) > 1 {
		of = fmt.Sprintf(" in %d of %d series", len(bad), len(values))
	}
	return Answer{s.text, Fails, fmt.Sprintf("%s is %s%s, and must be %s %s", s.Query, span(bad),
		of, s.Compare, number(s.Bound))}
}

// span says one number, or from which to which they are.
func span(values []float64) string {
	least, greatest := slices.Min(values), slices.Max(values)
	if least == greatest {
		return number(least)
	}
	return number(least) + " to " + number(greatest)
}

// Checked is the answer of an HTTP check, or of a command: ok says whether it is as demanded, and said what it was,
// such as "HTTP status 503".
func (s Signal) Checked(ok bool, said string) Answer {
	state := Fails
	if ok {
		state = Holds
	}
	return Answer{s.text, state, s.Name() + ": " + said}
}

// NoAnswer is the answer of a signal that was asked, and gave none. A service that does not answer its check is down,
// and so is one whose command hangs; a Prometheus without an answer says nothing about what it measures.
func (s Signal) NoAnswer(why error) Answer {
	if s.Query != "" {
		return s.Silent(why)
	}
	return s.Checked(false, "no answer: "+short(why))
}

// Silent is the answer of a signal that could not be asked, or whose answer is no measurement.
func (s Signal) Silent(why error) Answer {
	return Answer{s.text, Unknown, "no answer to " + s.Name() + ": " + short(why)}
}

// short is an error in one line of bounded length.
func short(why error) string {
	const longest = 300
	text := []rune(printable.Line(why.Error()))
	return string(text[:min(len(text), longest)])
}

// Worst is the least that the answers prove: Fails before Unknown before Holds. Without answers it is Unknown.
func Worst(answers []Answer) State {
	worst := Unknown
	for i, one := range answers {
		if i == 0 || one.State == Fails || one.State == Unknown && worst == Holds {
			worst = one.State
		}
	}
	return worst
}

// Not are the answers whose signals do not hold, failures first.
func Not(answers []Answer) []Answer {
	all := slices.DeleteFunc(slices.Clone(answers), func(a Answer) bool { return a.State == Holds })
	slices.SortStableFunc(all, func(a, b Answer) int { return strings.Compare(string(a.State), string(b.State)) })
	return all
}

// Say joins what answers say.
func Say(answers []Answer) string {
	said := make([]string, len(answers))
	for i, one := range answers {
		said[i] = one.Says
	}
	return strings.Join(said, "; ")
}

// oldest is how far the time of an answer may be from this machine's.
const oldest = time.Minute

// info begins what a Prometheus remarks about a query, and not about its data. Some versions put that among the
// warnings.
const info = "PromQL info:"

// ReadAnswer reads the numbers of an answer of Prometheus' HTTP API (/api/v1/query): those of a scalar, or of all
// series of a vector, each of which is finite. An error says why the answer is no measurement: one with warnings may
// lack series, and one of another time than now comes from a cache or from a clock that is wrong.
func ReadAnswer(body []byte, now time.Time) ([]float64, error) {
	var answer struct {
		Status   string   `json:"status"`
		Error    string   `json:"error"`
		Warnings []string `json:"warnings"`
		Data     struct {
			Type   string          `json:"resultType"`
			Result json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("it is not JSON of a Prometheus: %w", err)
	}
	if answer.Status != "success" {
		if answer.Error == "" {
			return nil, errors.New("it is not JSON of a Prometheus: it has no status")
		}
		return nil, fmt.Errorf("the query fails: %s", answer.Error)
	}
	for _, one := range answer.Warnings {
		if !strings.HasPrefix(one, info) {
			return nil, fmt.Errorf("it comes with a warning, and may be partial: %s", one)
		}
	}
	var samples []sample
	var err error
	switch answer.Data.Type {
	case "scalar":
		samples = make([]sample, 1)
		err = json.Unmarshal(answer.Data.Result, &samples[0])
	case "vector":
		var series []struct {
			Value sample `json:"value"`
		}
		err = json.Unmarshal(answer.Data.Result, &series)
		for _, one := range series {
			samples = append(samples, one.Value)
		}
	default:
		return nil, fmt.Errorf("the query yields a %.20q: a scalar or a vector is needed", answer.Data.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("its result cannot be read: %w", err)
	}
	if len(samples) == 0 {
		return nil, errors.New("the query yields no data; if that means 0, add: or vector(0)")
	}
	values := make([]float64, len(samples))
	for i, one := range samples {
		at, timed := one[0].(float64)
		if skew := math.Abs(at - float64(now.UnixMilli())/1000); !timed || skew > oldest.Seconds() {
			return nil, fmt.Errorf("its time differs from this machine's by %.0f s: it is old, or a clock is "+
				"wrong", skew)
		}
		text, _ := one[1].(string)
		values[i], err = strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(values[i]) || math.IsInf(values[i], 0) {
			return nil, fmt.Errorf("the query yields %.40q, which is not a measurement", fmt.Sprint(one[1]))
		}
	}
	return values, nil
}

// sample is a time and a value, which is a number as a string.
type sample [2]any
