package loss

import (
	"fmt"
	"strconv"
	"strings"
)

// count writes a number with thousands separators: 41,200.
func count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	var out strings.Builder
	for i, digit := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 && digits[i-1] != '-' {
			out.WriteByte(',')
		}
		out.WriteRune(digit)
	}
	return out.String()
}

// ms writes milliseconds as people read them: 0.4 ms, 120 ms, 3.2 s.
func ms(millis float64) string {
	switch {
	case millis >= 1000:
		return fmt.Sprintf("%.1f s", millis/1000)
	case millis >= 10 || millis == 0:
		return fmt.Sprintf("%.0f ms", millis)
	}
	return fmt.Sprintf("%.1f ms", millis)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(int64(n)) + " " + noun + "s"
}

// more is the tail of a list of which only the first item is named.
func more(n int, noun string) string {
	if n <= 0 {
		return ""
	}
	return " (and " + plural(n, noun) + " more)"
}
