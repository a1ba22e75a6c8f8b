package browser

import "flag"

var images = flag.String("images", "", "write the pictures of README.md into this `directory`")

var screenshots = flag.String("screenshots", "", "take screenshots into this `directory`")
