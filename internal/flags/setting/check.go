package setting

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// checkText checks a value by the knob's type. Parameters of Felix have a check of their own.
func (k *Knob) checkText(text string) error {
	var err error
	switch k.Type {
	case Bool:
		if text != "true" && text != "false" {
			return errors.New("it must be true or false")
		}
	case Enum:
		for _, value := range k.Values {
			if value == text || k.AnyCase && strings.EqualFold(value, text) {
				return nil
			}
		}
		return errors.New("it must be one of " + strings.Join(k.Values, ", "))
	case Integer:
		if _, err = strconv.ParseInt(text, 0, 64); err != nil {
			return errors.New("it must be an integer")
		}
	case Number:
		if _, err = strconv.ParseFloat(text, 64); err != nil {
			return errors.New("it must be a number")
		}
	case Duration:
		if _, err = time.ParseDuration(text); err != nil {
			return errors.New("it must be a duration such as 90s")
		}
	case Map:
		for pair := range strings.SplitSeq(text, ",") {
			if pair != "" && !strings.Contains(pair, "=") && !strings.HasPrefix(text, "{") {
				return errors.New("it must be comma-separated pairs k=v")
			}
		}
	}
	return nil
}

// truth normalises a boolean to "true" or "false"; any other text is returned unchanged.
func truth(text string) string {
	switch lower(text) {
	case "true", "1", "yes", "y", "t", "enabled":
		return "true"
	case "false", "0", "no", "n", "f", "disabled", "":
		return "false"
	}
	return text
}

func lower(text string) string { return strings.ToLower(text) }
