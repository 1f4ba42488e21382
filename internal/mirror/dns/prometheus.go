package dns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ErrorRate queries an instant value from Prometheus: the greatest of several series. Missing data is an error.
func ErrorRate(ctx context.Context, server, query string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	address := strings.TrimSuffix(server, "/") + "/api/v1/query?query=" + url.QueryEscape(query)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	var body struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			Type   string          `json:"resultType"`
			Result json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, 1<<20)).Decode(&body); err != nil {
		return 0, fmt.Errorf("HTTP status %d, and no JSON: %w", answer.StatusCode, err)
	}
	if body.Status != "success" {
		return 0, fmt.Errorf("the query fails: %s", body.Error)
	}
	var samples [][2]any
	switch body.Data.Type {
	case "scalar":
		samples = make([][2]any, 1)
		err = json.Unmarshal(body.Data.Result, &samples[0])
	case "vector":
		var series []struct {
			Value [2]any `json:"value"`
		}
		err = json.Unmarshal(body.Data.Result, &series)
		for _, one := range series {
			samples = append(samples, one.Value)
		}
	default:
		return 0, fmt.Errorf("the query yields a %s: a scalar or a vector is needed", body.Data.Type)
	}
	if err != nil {
		return 0, err
	}
	if len(samples) == 0 {
		return 0, errors.New("the query yields no data")
	}
	worst := math.Inf(-1)
	for _, sample := range samples {
		text, _ := sample[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(value) {
			return 0, fmt.Errorf("the query yields %v, which is no number", sample[1])
		}
		worst = max(worst, value)
	}
	return worst, nil
}
