package docker

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// pullSilence is the maximum time without progress of a pull.
const pullSilence = 2 * time.Minute

// HasImage reports whether the runtime has an image.
func (c *Client) HasImage(ctx context.Context, image string) (bool, error) {
	err := c.call(ctx, request{method: http.MethodGet, path: "/images/" + image + "/json"}, nil)
	if isNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// Pull makes the runtime fetch an image from its registry, without credentials. It may take any time while there is
// progress.
func (c *Client) Pull(ctx context.Context, image string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := &Error{Kind: ErrTimeout, Text: "the pull of " + image + " made no progress for " + pullSilence.String()}
	silence := time.AfterFunc(pullSilence, func() { cancel(silent) })
	defer silence.Stop()
	r := request{method: http.MethodPost, path: "/images/create", query: url.Values{"fromImage": {withTag(image)}}}
	res, err := c.sendVersioned(ctx, &c.long, r)
	if err != nil {
		return fmt.Errorf("image %s cannot be pulled: %w", image, err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxAnswer)
	for lines.Scan() {
		silence.Reset(pullSilence)
		if err := pullError(lines.Bytes()); err != "" {
			return c.errorf(r.op(), "image %s cannot be pulled: %s", image, err)
		}
	}
	if err := lines.Err(); err != nil {
		return c.failed(ctx, r.op(), err)
	}
	return nil
}

// pullError returns the error in a line of progress, or "".
func pullError(line []byte) string {
	var progress struct{ Error string }
	_ = json.Unmarshal(line, &progress) // invalid JSON is not an error of the pull
	return oneLine(progress.Error)
}

// withTag returns an image with the tag latest if it has neither a tag nor a digest: otherwise the API would pull all
// tags.
func withTag(image string) string {
	name := image[strings.LastIndexByte(image, '/')+1:]
	if strings.ContainsAny(name, ":@") {
		return image
	}
	return image + ":latest"
}
