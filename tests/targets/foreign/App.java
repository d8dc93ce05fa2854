import java.util.ArrayList;
import java.util.List;

/** Something for async-profiler to record. */
public class App {
    static final Object LOCK = new Object();
    static volatile double sink;
    static final List<byte[]> kept = new ArrayList<>();

    static double leaf(int amount) {
        double sum = 0;
        for (int i = 0; i < amount; i++) sum += Math.sqrt(i) % 7;
        return sum;
    }

    static double middle(int amount) {
        return leaf(amount) + leaf(amount / 2);
    }

    static void work(long millis) {
        long end = System.currentTimeMillis() + millis;
        while (System.currentTimeMillis() < end) {
            synchronized (LOCK) {
                sink = middle(200_000);
                kept.add(new byte[50_000]);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        Thread other = new Thread(() -> work(1500), "named");
        other.start();
        work(1500);
        other.join();
    }
}
