// Runs Kafka's command-line tools one after the other in one Java: a line in is a class and its arguments between tabs, a line out is
// the exit code and what was printed, in base64. A script of a hundred commands then takes seconds.

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.Exit;

public class ToolShell {
    public static void main(String[] none) throws Exception {
        BlockingQueue<Integer> ended = new LinkedBlockingQueue<>();
        Exit.setExitProcedure((code, message) -> {
            ended.add(code);
            LockSupport.park(); // as after an exit: nothing of it goes on
        });
        PrintStream answers = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream screen = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(screen);
            System.setErr(screen);
            ended.clear();
            Thread tool = new Thread(() -> {
                try {
                    Class.forName(words[0])
                        .getMethod("main", String[].class)
                        .invoke(null, (Object) Arrays.copyOfRange(words, 1, words.length));
                    ended.add(0);
                } catch (ReflectiveOperationException thrown) {
                    thrown.printStackTrace(screen);
                    ended.add(1);
                }
            });
            tool.setDaemon(true);
            tool.start();
            int code = ended.take();
            screen.flush();
            answers.println(code + " " + Base64.getEncoder().encodeToString(printed.toByteArray()));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
