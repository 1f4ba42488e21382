package loss

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// Answer says that a report was counted after its agent had seen a question of a gate (v1alpha1.Asked).
type Answer struct {
	Number int64 `json:"number"`
	// Seen is when the agent saw the question, or got the plan of its report if that was later. Measured is how long
	// after that the counts of the report were taken, of the prober whose counts are the oldest. The node's clock may
	// be set in between: Measured does not depend on it.
	Seen     time.Time     `json:"seen"`
	Measured time.Duration `json:"measured"`
}

// answers is the content of v1alpha1.AnnotationAnswer. It is only about the report with this number: an agent of an
// older version leaves the annotation when it writes the next one.
type answers struct {
	Seq int64    `json:"seq"`
	To  []Answer `json:"to"`
}

// maxAnswers bounds the annotation, in bytes. A node writes it.
const maxAnswers = 4096

// AnswersText is the value of v1alpha1.AnnotationAnswer of the report with a number; empty without an answer.
func AnswersText(seq int64, to []Answer) string {
	if len(to) == 0 {
		return ""
	}
	text, err := json.Marshal(answers{seq, to})
	if err != nil { // of a time that no clock has
		return ""
	}
	return string(text)
}

// answerTo is a report's answer to a question. There is none if the annotation is about another report, or cannot be
// read.
func answerTo(report *v1alpha1.ProbeReport, number int64) (answer Answer, ok bool) {
	text := report.Annotations[v1alpha1.AnnotationAnswer]
	if len(text) > maxAnswers || !strings.Contains(text, strconv.FormatInt(number, 10)) {
		return Answer{}, false // most reports, at no cost
	}
	var read answers
	if err := json.Unmarshal([]byte(text), &read); err != nil || read.Seq != report.Status.Seq {
		return Answer{}, false
	}
	for _, answer := range read.To {
		if answer.Number == number {
			return answer, true
		}
	}
	return Answer{}, false
}
