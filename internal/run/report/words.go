package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// number writes a number with thousands separators: 481,203.
func number(n int64) string {
	text := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

// countOf writes a number with its noun, in the plural unless it is 1.
func countOf(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return number(n) + " " + noun
}

func timesText(n int) string {
	if n == 1 {
		return "once"
	}
	return number(int64(n)) + " times"
}

// duration writes milliseconds as people read them: 0.4 ms, 6 ms, 1.25 s, 3 min 20 s, 2 h 5 min.
func duration(ms float64) string {
	switch {
	case ms == 0:
		return "0 ms"
	case ms < 10:
		return strconv.FormatFloat(math.Round(ms*10)/10, 'f', -1, 64) + " ms"
	case ms < 999.5:
		return strconv.FormatFloat(math.Round(ms), 'f', -1, 64) + " ms"
	case ms < 59_995:
		return strconv.FormatFloat(math.Round(ms/10)/100, 'f', -1, 64) + " s"
	}
	d := time.Duration(ms * float64(time.Millisecond)).Round(time.Second)
	if d < time.Hour {
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
}

// some names up to five, and how many more there are.
func some(names []string) string {
	if len(names) <= 5 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %s more", strings.Join(names[:5], ", "), number(int64(len(names)-5)))
}
